"""Which sandboxes this machine's workers have open: one small file each, so that orphans are found.

A record is written before its first process starts and removed after its last one ended. It names the worker
by process id and start time, and the sandbox by a random token that is an argument of its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from zubble_queue.errors import SandboxUnavailable

_ROOT_DIR: Final = Path("/run/zubble")


def runtime_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """/run/zubble for root, $XDG_RUNTIME_DIR/zubble or /tmp/zubble-<uid> for others; made, and ours alone.

    Raises SandboxUnavailable when the folder belongs to somebody else or others may enter it.
    """
    uid = os.geteuid()
    session = environ.get("XDG_RUNTIME_DIR")
    if uid == 0:
        folder = _ROOT_DIR
    elif session and Path(session).is_dir():
        folder = Path(session) / "zubble"
    else:
        folder = Path(tempfile.gettempdir()) / f"zubble-{uid}"
    return private_dir(folder)


def private_dir(folder: Path) -> Path:
    """Make a folder that only we may enter. Raises SandboxUnavailable when it is not ours alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
    except OSError as error:
        raise SandboxUnavailable(f"{folder} cannot be made: {error.strerror}.") from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise SandboxUnavailable(f"{folder} must be a folder of this user with mode 0700.")
    return folder


@dataclass(frozen=True, slots=True)
class Record:
    """One open sandbox."""

    token: str
    backend: str
    name: str
    owner: str
    worker_pid: int
    worker_started: str
    """Field 22 of /proc/<pid>/stat: with it a pid that was used again is not mistaken for the worker."""
    folder: str | None = None
    """On the host, to be removed with the sandbox."""

    @classmethod
    def new(
        cls, *, backend: str, name: str, owner: str, folder: str | None = None, token: str | None = None
    ) -> Self:
        pid = os.getpid()
        return cls(token or new_token(), backend, name, owner, pid, started_at(pid) or "", folder)

    @property
    def orphaned(self) -> bool:
        return started_at(self.worker_pid) != self.worker_started


def new_token() -> str:
    return "zubble-" + secrets.token_hex(16)


def started_at(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else fields[19].decode()


class Records:
    """The folder of records of one backend."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_dir(folder)

    def add(self, record: Record) -> None:
        path = self._path(record.token)
        path.with_suffix(".new").write_text(json.dumps(asdict(record)), "utf-8")
        path.with_suffix(".new").rename(path)

    def remove(self, token: str) -> None:
        self._path(token).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Record]:
        for path in sorted(self._folder.glob("zubble-*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                yield Record(**json.loads(path.read_bytes()))

    def orphans(self, backend: str, keep_owners: frozenset[str]) -> list[Record]:
        return [
            record
            for record in self
            if record.backend == backend and record.owner not in keep_owners and record.orphaned
        ]

    def _path(self, token: str) -> Path:
        return self._folder / f"{token}.json"


def kill_marked(token: str) -> int:
    """Kill every process that has the token as an argument of its own, and return how many there were."""
    marked = token.encode()
    killed = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid() and marked in _arguments(entry.name):
            with contextlib.suppress(OSError):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def _arguments(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
