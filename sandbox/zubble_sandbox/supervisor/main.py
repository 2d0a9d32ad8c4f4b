# pathlib and contextlib are slow to import:
# ruff: noqa: PTH123
"""Serve one worker until it is gone: pid 1 of a namespace, or the head of a process tree without one."""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os
import resource
import select
import time

from zubble_sandbox.supervisor import archive, files, wire
from zubble_sandbox.supervisor.family import SIGINT, Descendants, Namespace
from zubble_sandbox.supervisor.running import Runner
from zubble_sandbox.supervisor.tree import Roots

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` are slow to import
    from collections.abc import Callable, Iterable

    Pieces = Iterable[bytes]

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _SIG_DFL = 4, 36, 0
_NO_NAMESPACE = 71
MAX_WAIT_SECONDS = 3_600.0
MIN_OPEN_FILES = 256
"""The supervisor lives under the same limit and needs one descriptor for each level of a tree."""


def main(control: int) -> None:
    """Serve on an inherited socket; the process ends here."""
    line = wire.Line(control)
    try:
        kind, call, payload = line.receive()
        if kind == wire.SETUP:
            supervisor = Supervisor(line, payload)
            line.send(wire.OK, call)
            supervisor.serve()
    except wire.Closed:
        pass
    os._exit(0)


class Request:
    """One call of the worker; `body` is what follows a WRITE or RESTORE."""

    def __init__(self, call: int, fields: list[bytes], body: wire.Body) -> None:
        self.call, self.fields, self.body = call, fields, body


class Supervisor:
    """What the worker may ask for."""

    def __init__(self, line: wire.Line, setup: bytes) -> None:
        mode, life_seconds, pids, open_files, file_bytes, memory_bytes, *folders = wire.unpack(setup)
        namespace = mode == b"namespace"
        if namespace and os.getpid() != 1:
            os._exit(_NO_NAMESPACE)  # a signal to "all others" would reach everything else of this user
        _harden(namespace=namespace)
        _limit(resource.RLIMIT_NOFILE, max(MIN_OPEN_FILES, int(open_files)))
        if namespace:
            _limit(resource.RLIMIT_NPROC, int(pids))
            _limit(resource.RLIMIT_FSIZE, int(file_bytes))
            _limit(resource.RLIMIT_DATA, int(memory_bytes))
        self._line = line
        line.end_of_life = time.monotonic() + float(life_seconds)
        self._roots = Roots(_pairs(folders))
        self._runner = Runner(self._roots, Namespace() if namespace else Descendants())
        self._requests: dict[int, Callable[[Request], Pieces]] = {
            wire.EXEC: self._exec,
            wire.KILL: self._kill,
            wire.FREEZE: self._freeze,
            wire.THAW: self._thaw,
            wire.PING: self._ping,
            wire.READ: self._read,
            wire.WRITE: self._write,
            wire.LIST: self._list,
            wire.FINGERPRINT: self._fingerprint,
            wire.SNAPSHOT: self._snapshot,
            wire.RESTORE: self._restore,
        }

    def serve(self) -> None:
        try:
            while True:
                self._turn()
        finally:
            self._runner.end_all()

    def _turn(self) -> None:
        runner = self._runner
        for fd in self._wait():
            if fd == self._line.fd:
                self._answer(*self._line.receive())
            elif runner.running is not None:
                runner.running.ready(fd)
        if time.monotonic() >= self._line.end_of_life:
            raise wire.Closed
        runner.collect()
        if runner.running is not None and runner.running.finished:
            self._finish()

    def _wait(self) -> list[int]:
        running = self._runner.running
        poller = select.poll()
        seconds = min(MAX_WAIT_SECONDS, self._line.end_of_life - time.monotonic())
        # The pipes come first: what a command wrote before it was killed by the worker is still taken in.
        for fd in running.fds if running is not None else ():
            poller.register(fd, select.POLLIN)
        poller.register(self._line.fd, select.POLLIN)
        if running is not None:
            seconds = min(seconds, running.wait_seconds())
        return [fd for fd, _ in poller.poll(max(0.0, seconds) * 1_000)]

    def _finish(self) -> None:
        assert self._runner.running is not None
        call = self._runner.running.call
        self._line.send(wire.OK, call, wire.pack(*self._runner.finish()))

    def _answer(self, kind: int, call: int, payload: bytes) -> None:
        request = Request(call, wire.unpack(payload), wire.Body(self._line, call))
        answers = kind != wire.EXEC
        try:
            for piece in self._requests[kind](request):
                self._line.send(wire.CHUNK, call, piece)
        except wire.Closed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tree does to us is an answer, never the end of pid 1
            self._leave_body(kind, request)
            self._line.send(wire.FAILED, call, wire.pack(*_described(error)))
        else:
            self._leave_body(kind, request)
            if answers:
                self._line.send(wire.OK, call)

    @staticmethod
    def _leave_body(kind: int, request: Request) -> None:
        if kind in {wire.WRITE, wire.RESTORE}:
            request.body.drain()

    def _exec(self, request: Request) -> Pieces:
        """Answered when the command ends, or at once when it cannot be started."""
        if self._runner.running is not None:
            raise ValueError("a command is running already")
        timeout, cwd, count, *rest = request.fields
        argv, env = rest[: int(count)], _pairs(rest[int(count) :])
        result = self._runner.start(request.call, float(timeout), cwd, argv, env)
        if result is not None:
            self._line.send(wire.OK, request.call, wire.pack(*result))
        return ()

    def _kill(self, _: Request) -> Pieces:
        if self._runner.running is not None:
            self._finish()
        return ()

    def _freeze(self, _: Request) -> Pieces:
        self._runner.freeze()
        return ()

    def _thaw(self, _: Request) -> Pieces:
        self._runner.thaw()
        return ()

    def _ping(self, _: Request) -> Pieces:
        return ()

    def _read(self, request: Request) -> Pieces:
        path, max_bytes = request.fields
        return _pieces(files.read(self._roots, path, int(max_bytes)))

    def _write(self, request: Request) -> Pieces:
        path, executable = request.fields
        files.write(self._roots, path, request.body, executable=executable == b"1")
        return ()

    def _list(self, request: Request) -> Pieces:
        path, limit = request.fields
        return _pieces(wire.pack(*files.listing(self._roots, path, int(limit))))

    def _fingerprint(self, _: Request) -> Pieces:
        return (files.fingerprint(self._roots),)

    def _snapshot(self, request: Request) -> Pieces:
        return archive.snapshot(self._roots, int(request.fields[0]))

    def _restore(self, request: Request) -> Pieces:
        archive.restore(self._roots, request.body)
        return ()


def _pairs(texts: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(texts[::2], texts[1::2]))  # noqa: B905 - `strict` is newer than 3.9


def _pieces(data: bytes) -> Pieces:
    return (data[at : at + wire.CHUNK_BYTES] for at in range(0, len(data), wire.CHUNK_BYTES))


def _described(error: Exception) -> tuple[bytes, bytes, bytes]:
    if isinstance(error, OSError):
        return b"os", b"%d" % (error.errno or 0), (error.strerror or str(error)).encode()
    kind = b"value" if isinstance(error, ValueError) else b"fault"
    return kind, b"0", f"{error}".encode("utf-8", "backslashreplace")


def _harden(*, namespace: bool) -> None:
    """Out of reach of commands that run as the same user; the first to go when memory is short."""
    os.umask(0o022)
    _be_killed_first()
    _signal.signal(SIGINT, _SIG_DFL)
    _prctl(_PR_SET_DUMPABLE, 0)
    if not namespace:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    """By the C half of ctypes where it can be had: its Python half takes as long to import as all of this."""
    try:
        program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        address = _ctypes.dlsym(program, "prctl")
        failed = _ctypes.call_function(address, (option, value, 0, 0, 0))
    except AttributeError:
        import ctypes  # noqa: PLC0415 - see above

        failed = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    if failed:
        os._exit(70)


def _be_killed_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"900")
    except OSError:
        pass


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (lowered, lowered))
