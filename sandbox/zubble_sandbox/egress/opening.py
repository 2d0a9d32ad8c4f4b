"""A proxy for one sandbox, from its socket to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from zubble_queue.contracts.sandbox import HostUse, SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.egress.carrier import Carrier, Connect
from zubble_sandbox.egress.outside import Outside, System
from zubble_sandbox.egress.proxy import Limits, Policy, Proxy
from zubble_sandbox.egress.tally import Tally
from zubble_sandbox.records import private_dir, runtime_dir

INSIDE_FOLDER: Final = "/run/egress"
INSIDE_SOCKET: Final = f"{INSIDE_FOLDER}/proxy"
PORT: Final = 3128
"""On the sandbox's own 127.0.0.1, where the forwarder listens."""
_URL: Final = f"http://127.0.0.1:{PORT}"
_NO_PROXY: Final = "localhost,127.0.0.1,::1"
ENV: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), _URL),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), _NO_PROXY),
    }
)
"""Some programs read only the lower, some only the upper case."""
_PASSABLE: Final = Path("/run/zubble-egress")
"""Of root, whose runtime folder lets nobody pass."""
_PASSABLE_MODE: Final = 0o711
_SOCKET_MODE: Final = 0o666
"""Whoever reaches it may connect; its folders decide about that."""
_BACKLOG: Final = 64
_SOCKETS: Final = Path("/proc/net/unix")
_NEW_SECONDS: Final = 60.0
"""A folder may be there for a moment before its socket is."""


@dataclass(frozen=True, slots=True)
class Egress:
    """An open way out. It belongs to whoever opened it, and ends with `close`."""

    folder: Path
    """On the host; to be mounted read-only at INSIDE_FOLDER."""
    env: Mapping[str, str]
    """For every command of the sandbox."""
    tally: Tally
    serving: asyncio.Task[None]
    listener: socket.socket
    carriers: list[Carrier] = field(default_factory=list)
    """From where its folder is not seen."""

    @property
    def socket(self) -> Path:
        """Where it listens, on the host."""
        return self.folder / Path(INSIDE_SOCKET).name

    def uses(self) -> tuple[HostUse, ...]:
        """What was asked of it so far, by host."""
        return self.tally.uses()

    async def carry(self, connect: Connect) -> None:
        """Have connections brought from a place that the folder cannot be mounted in.

        Raises SandboxUnavailable when nothing listens there.
        """
        self.carriers.append(await Carrier.open(connect, self.socket))

    async def close(self) -> None:
        """Break every connection, and remove the socket; at most a moment, and as often as one likes."""
        for carrier in self.carriers:
            await carrier.close()
        self.serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.serving
        self.listener.close()
        _remove(self.folder)


async def open_for(
    spec: SandboxSpec,
    token: str,
    *,
    uid: int | None = None,
    outside: Outside | None = None,
    limits: Limits | None = None,
) -> Egress | None:
    """The way out that a sandbox asks for; None where it asks for no allow-list.

    Args:
        spec: Names the hosts and ports.
        token: The sandbox's; names the folder. A later call with the same one takes the place of the first,
            whose worker is gone, with the user of the first.
        uid: Another user, who has to get to the folder by its path in order to mount it.
        outside: The resolver and network; those of this machine when None.
        limits: What the sandbox can take of its worker.

    Raises:
        SandboxUnavailable: No socket can be made.
    """
    if spec.network != "allowlist":
        return None
    folder = _place(token, uid)
    try:
        _make(folder, uid)
        listener = _listen(folder / Path(INSIDE_SOCKET).name)
    except OSError as error:
        _remove(folder)
        raise SandboxUnavailable(f"The egress proxy cannot listen below {folder}: {error}.") from error
    tally = Tally(spec.name)
    policy = Policy(spec.allowed_hosts, frozenset(spec.allowed_ports))
    proxy = Proxy(policy, outside or System(), tally, limits or Limits())
    return Egress(folder, ENV, tally, asyncio.create_task(proxy.serve(listener)), listener)


@contextlib.asynccontextmanager
async def while_opening(way_out: Egress | None) -> AsyncIterator[Egress | None]:
    """Close it again when the sandbox that it is for cannot be opened."""
    try:
        yield way_out
    except BaseException:
        if way_out is not None:
            await way_out.close()
        raise


def forget(token: str) -> None:
    """Remove what a worker that is gone left of the way out of one of its sandboxes."""
    _remove(runtime_dir() / "egress" / token)
    if os.geteuid() == 0:
        _remove(_PASSABLE / token)


def forget_silent(kind: str) -> None:
    """Remove what workers that are gone left of ways out whose token begins with `kind`."""
    folders = sorted((runtime_dir() / "egress").glob(f"{kind}*"))
    sockets = _SOCKETS.read_text("utf-8", "replace") if folders else ""
    for folder in folders:
        if f" {folder}/" not in sockets and time.time() > folder.stat().st_mtime + _NEW_SECONDS:
            _remove(folder)


def _place(token: str, uid: int | None) -> Path:
    if os.geteuid() != 0 or (uid is None and not (_PASSABLE / token).exists()):
        return private_dir(runtime_dir() / "egress") / token
    _PASSABLE.mkdir(mode=_PASSABLE_MODE, exist_ok=True)
    info = _PASSABLE.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != 0 or info.st_mode & 0o022:
        raise SandboxUnavailable(f"{_PASSABLE} must be a folder of root that no other can change.")
    return _PASSABLE / token


def _make(folder: Path, uid: int | None) -> None:
    """Where everybody may pass, nobody but its user may enter; in a private place whoever has it mounted."""
    if folder.exists():
        return
    folder.mkdir(mode=0o700)
    if uid is None:
        folder.chmod(_PASSABLE_MODE)
    else:
        os.chown(folder, uid, uid)


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(_SOCKET_MODE)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove(folder: Path) -> None:
    (folder / Path(INSIDE_SOCKET).name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
