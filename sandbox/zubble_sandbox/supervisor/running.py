# pathlib and contextlib are slow to import:
# ruff: noqa: PTH116
"""One command at a time: a fresh session, bounded output, and nothing of it left behind."""

from __future__ import annotations

import errno
import os
import stat
import time

from zubble_sandbox.supervisor.family import (
    SIGCONT,
    SIGKILL,
    SIGSTOP,
    Descendants,
    Namespace,
    end_all,
    reap,
)
from zubble_sandbox.supervisor.tree import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` are slow to import
    from collections.abc import Mapping, Sequence

KEEP_BYTES = 65_536
"""Of each stream the first and the last so many bytes are kept."""
GRACE_SECONDS = 0.1
"""How long pipes may stay open after the command itself has ended."""
REAP_SECONDS = 1.0
"""How often orphans that ended during a long command are collected."""
READ_BYTES = 65_536
DEFAULTED = [number for number in range(1, 32) if number not in (SIGKILL, SIGSTOP)]
"""A command meets these with their default action, whatever its worker ignores, as under nohup."""


class Stream:
    """One pipe: all of it is read and counted, its two ends are kept."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.total = 0
        self.head = bytearray()
        self.tail = b""
        self.open = True

    def pull(self) -> bool:
        """Read once; False when nothing was there."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._keep(data)
        return True

    def close(self) -> None:
        if self.open:
            self.open = False
            os.close(self.fd)

    def _keep(self, data: bytes) -> None:
        self.total += len(data)
        room = KEEP_BYTES - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self.tail = data[-KEEP_BYTES:] if len(data) >= KEEP_BYTES else (self.tail + data)[-KEEP_BYTES:]


class Running:
    """A started command, from its first byte to its result."""

    def __init__(
        self, call: int, pid: int, streams: tuple[Stream, Stream], started: float, deadline: float
    ) -> None:
        self.call, self.pid, self.streams = call, pid, streams
        self.pidfd = os.pidfd_open(pid)
        self.started, self.deadline = started, deadline
        self.status: int | None = None
        self.exited = False
        self._frozen_at: float | None = None

    @property
    def fds(self) -> list[int]:
        pipes = [stream.fd for stream in self.streams if stream.open]
        return pipes if self.exited else [*pipes, self.pidfd]

    def ready(self, fd: int) -> None:
        for stream in self.streams:
            if stream.open and fd == stream.fd:
                stream.pull()
                return
        self.exited = True
        self.deadline = min(self.deadline, time.monotonic() + GRACE_SECONDS)

    @property
    def finished(self) -> bool:
        quiet = self.exited and not any(stream.open for stream in self.streams)
        return quiet or (self._frozen_at is None and time.monotonic() >= self.deadline)

    def wait_seconds(self) -> float:
        if self._frozen_at is not None:
            return REAP_SECONDS
        return min(REAP_SECONDS, max(0.0, self.deadline - time.monotonic()))

    def collect(self, ended: Mapping[int, int]) -> None:
        self.status = ended.get(self.pid, self.status)

    def freeze(self) -> None:
        self._frozen_at = self._frozen_at or time.monotonic()

    def thaw(self) -> None:
        """The time it was frozen is not counted against the command."""
        if self._frozen_at is not None:
            self.deadline += time.monotonic() - self._frozen_at
            self._frozen_at = None

    def result(self) -> list[bytes]:
        """After everybody was killed: kind, code, seconds, then total, head, tail of both streams."""
        seconds = time.monotonic() - self.started
        for stream in self.streams:
            while stream.open and stream.pull():
                pass
            stream.close()
        os.close(self.pidfd)
        kind, code = self._ending()
        fields = [kind, b"%d" % code, b"%.6f" % seconds]
        for stream in self.streams:
            fields += (b"%d" % stream.total, bytes(stream.head), stream.tail)
        return fields

    def _ending(self) -> tuple[bytes, int]:
        if not self.exited or self.status is None:
            return b"timeout", 0
        if os.WIFSIGNALED(self.status):
            return b"signal", os.WTERMSIG(self.status)
        return b"exit", os.WEXITSTATUS(self.status)


def not_started(code: int, sentence: str) -> list[bytes]:
    """The result of a command that could not be started, as a shell would report it."""
    text = f"zubble: {sentence}\n".encode("utf-8", "surrogateescape")
    return [b"exit", b"%d" % code, b"0", b"0", b"", b"", b"%d" % len(text), text, b""]


class Runner:
    """Starts, freezes and ends commands."""

    def __init__(self, roots: Roots, family: Namespace | Descendants) -> None:
        self._roots, self._family = roots, family
        self.running: Running | None = None

    def start(
        self, call: int, timeout_seconds: float, cwd: bytes, argv: Sequence[bytes], env: Mapping[bytes, bytes]
    ) -> list[bytes] | None:
        """None when it runs; the result when it could not be started."""
        try:
            self._enter(cwd)
        except OSError as error:
            return not_started(126, f"cannot run in {os.fsdecode(cwd)!r}: {error.strerror}")
        try:
            self.running = self._spawn(call, timeout_seconds, argv, env)
        except (OSError, ValueError) as error:  # ValueError: NUL in an argument, '=' in a variable's name
            missing = isinstance(error, FileNotFoundError)
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return not_started(127 if missing else 126, f"cannot start {os.fsdecode(argv[0])!r}: {reason}")
        finally:
            os.chdir("/")
        return None

    def _enter(self, cwd: bytes) -> None:
        folder = self._roots.open_folder(cwd)
        try:
            os.fchdir(folder)
        finally:
            os.close(folder)

    def _spawn(
        self, call: int, timeout_seconds: float, argv: Sequence[bytes], env: Mapping[bytes, bytes]
    ) -> Running:
        started = time.monotonic()
        program = _find(argv[0], env.get(b"PATH", b""))
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            pid = os.posix_spawn(
                program,
                list(argv),
                dict(env),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=DEFAULTED,
            )
        except BaseException:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        for fd in (out_read, err_read):
            os.set_blocking(fd, False)
        return Running(call, pid, (Stream(out_read), Stream(err_read)), started, started + timeout_seconds)

    def collect(self) -> None:
        """Take in orphans and the command itself when they have ended."""
        try:
            ended = reap(block=False)
        except ChildProcessError:
            return
        if self.running is not None:
            self.running.collect(ended)

    def finish(self) -> list[bytes]:
        """Kill everything that is left of the command; its result."""
        assert self.running is not None
        running, self.running = self.running, None
        running.collect(end_all(self._family))
        return running.result()

    def freeze(self) -> None:
        self._family.signal(SIGSTOP)
        if self.running is not None:
            self.running.freeze()

    def thaw(self) -> None:
        if self.running is not None:
            self.running.thaw()
        self._family.signal(SIGCONT)

    def end_all(self) -> None:
        end_all(self._family)


def _find(program: bytes, search: bytes) -> bytes:
    if b"/" in program:
        return program
    forbidden = False
    for folder in search.split(b":"):
        candidate = folder + b"/" + program
        try:
            mode = os.stat(candidate).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode) and os.access(candidate, os.X_OK):
            return candidate
        forbidden = True
    code = errno.EACCES if forbidden else errno.ENOENT
    raise OSError(code, os.strerror(code))
