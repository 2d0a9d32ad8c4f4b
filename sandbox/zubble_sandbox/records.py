"""Which sandboxes this machine's workers have open: one small file each, so that orphans are found.

A record is written before its first process starts and removed after its last one ended. It names the worker
by process id and start time, and the sandbox by a random token that is an argument of its processes. One that
may outlive its worker for a while also has a socket here, and a note of when it was first met alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import locks, notes

_ROOT_DIR: Final = Path("/run/zubble")
_RECORD, _NEW, _SOCKET, _ALONE = ".json", ".new", ".sock", ".alone"
_TOKEN: Final = re.compile(r"zubble-[0-9a-f]{32}")


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
    linger_seconds: float = 0.0
    """How long it may outlive its worker."""
    note: str = ""
    """Of its spec, where it may: see `notes`."""
    groups: tuple[str, ...] = ()
    """Its control groups, to be removed with it."""

    @classmethod
    def new(cls, *, backend: str, spec: SandboxSpec, folder: str | None = None) -> Self:
        pid, lingers = os.getpid(), spec.linger_seconds > 0
        return cls(
            token=new_token(),
            backend=backend,
            name=spec.name,
            owner=spec.owner,
            worker_pid=pid,
            worker_started=started_at(pid) or "",
            folder=folder,
            linger_seconds=spec.linger_seconds,
            note=notes.note(spec) if lingers else "",
        )

    @classmethod
    def read(cls, data: bytes) -> Self:
        """What was written. Raises TypeError, ValueError for what is no record."""
        values = dict(json.loads(data))
        return cls(**{**values, "groups": tuple(values.get("groups", ()))})

    def renamed(self, spec: SandboxSpec) -> Self:
        return replace(self, name=spec.name, note=notes.note(spec) if self.note else "")

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

    @contextlib.contextmanager
    def opening(self, record: Record) -> Iterator[None]:
        """Add a record before anything of its sandbox is made; it goes again when that fails."""
        self.add(record)
        try:
            yield
        except BaseException:
            self.remove(record.token)
            raise

    def add(self, record: Record) -> None:
        with self._locked():
            self._write(record)

    def _write(self, record: Record) -> None:
        path = self._path(record.token, _NEW)
        path.write_text(json.dumps(asdict(record)), "utf-8")
        path.rename(self._path(record.token))

    def sweep(self) -> None:
        """Remove records that were being written by a worker that died: nothing of theirs was made yet."""
        with self._locked():
            for path in self._folder.glob(f"zubble-*{_NEW}"):
                path.unlink()

    def remove(self, token: str) -> None:
        for kind in (_RECORD, _SOCKET, _ALONE):
            self._path(token, kind).unlink(missing_ok=True)

    def socket(self, token: str) -> Path:
        """Where a sandbox that may outlive its worker listens."""
        return self._path(token, _SOCKET)

    def adopt(self, token: str, backend: str) -> Record:
        """Make a sandbox whose worker is gone ours. Raises SandboxUnavailable when there is none."""
        if not _TOKEN.fullmatch(token):
            raise SandboxUnavailable(f"{token!r} is not the handle of a sandbox.")
        with self._locked():
            record = self._read(token)
            if record is None:
                raise SandboxUnavailable(f"There is no sandbox {token} on this machine.")
            if record.backend != backend or not record.linger_seconds:
                raise SandboxUnavailable(f"The sandbox {token} cannot be adopted by {backend}.")
            if not record.orphaned:
                raise SandboxUnavailable(f"The sandbox {token} has a worker that lives.")
            self._path(token, _ALONE).unlink(missing_ok=True)
            return self._make_ours(record)

    def claim(self, record: Record) -> bool:
        """Make an orphan ours to remove it; False when somebody else was quicker."""
        with self._locked():
            if self._read(record.token) != record:
                return False
            self._make_ours(record)
            return True

    def _read(self, token: str) -> Record | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Record.read(self._path(token).read_bytes())
        return None

    def _make_ours(self, record: Record) -> Record:
        pid = os.getpid()
        ours = replace(record, worker_pid=pid, worker_started=started_at(pid) or "")
        self._write(ours)
        return ours

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locks.locked(self._folder / "lock")

    def __iter__(self) -> Iterator[Record]:
        for path in sorted(self._folder.glob(f"zubble-*{_RECORD}")):
            if (record := self._read(path.stem)) is not None:
                yield record

    def orphans(self, backend: str, keep_owners: frozenset[str]) -> list[Record]:
        """What dead workers left, but for those that may still be adopted."""
        return [
            record
            for record in self
            if record.backend == backend
            and record.owner not in keep_owners
            and record.orphaned
            and not self._waits(record)
        ]

    def _waits(self, record: Record) -> bool:
        """Whether a sandbox may still be adopted: whoever first meets it alone notes when that was."""
        if not record.linger_seconds or not marked(record.token):
            return False
        path, now = self._path(record.token, _ALONE), time.monotonic()
        try:
            with path.open("x") as file:
                file.write(f"{now}")
        except FileExistsError:
            return now < float(path.read_text() or now) + record.linger_seconds
        return True

    def _path(self, token: str, kind: str = _RECORD) -> Path:
        return self._folder / f"{token}{kind}"


def marked(token: str) -> list[int]:
    """Every process that has the token as an argument of its own."""
    mark = token.encode()
    return [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdigit() and int(entry.name) != os.getpid() and mark in _arguments(entry.name)
    ]


def kill_marked(token: str) -> int:
    """Kill every process that is marked, and return how many there were."""
    killed = 0
    for pid in marked(token):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def _arguments(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
