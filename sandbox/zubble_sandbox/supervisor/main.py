"""Serve one worker until it is gone: pid 1 of a namespace, or the head of a process tree without one."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import sys
import time
from collections.abc import Iterable

from zubble_sandbox.supervisor import archive, files, wire
from zubble_sandbox.supervisor.family import SIGINT, Descendants, Namespace
from zubble_sandbox.supervisor.running import Runner
from zubble_sandbox.supervisor.tree import Roots

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _SIG_DFL = 4, 36, 0
MAX_WAIT_SECONDS = 3_600.0
MIN_OPEN_FILES = 256
"""The supervisor lives under the same limit and needs one descriptor for each level of a tree."""


def main(control: int) -> None:
    """Serve on an inherited socket; returns only when a call is impossible, normally the process ends here."""
    line = wire.Line(control)
    try:
        kind, call, payload = line.receive()
        if kind == wire.SETUP:
            supervisor = Supervisor(line, payload)
            line.send(wire.OK, call, wire.pack(sys.version.split()[0].encode()))
            supervisor.serve()
    except wire.Closed:
        pass
    os._exit(0)


class Supervisor:
    """What the worker may ask for."""

    def __init__(self, line: wire.Line, setup: bytes) -> None:
        mode, life_seconds, pids, open_files, file_bytes, *folders = wire.unpack(setup)
        namespace = mode == b"namespace"
        _harden(namespace=namespace)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, max(MIN_OPEN_FILES, int(open_files)))
        if namespace:
            _limit(resource.RLIMIT_NPROC, int(pids))
            _limit(resource.RLIMIT_FSIZE, int(file_bytes))
        self._line = line
        line.end_of_life = time.monotonic() + float(life_seconds)
        self._roots = Roots(dict(zip(folders[::2], folders[1::2])))
        self._runner = Runner(self._roots, Namespace() if namespace else Descendants())

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
        fields = wire.unpack(payload)
        body = wire.Body(self._line, call) if kind in {wire.WRITE, wire.RESTORE} else None
        try:
            for piece in self._do(kind, call, fields, body):
                self._line.send(wire.CHUNK, call, piece)
        except wire.Closed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tree does to us is an answer, never the end of pid 1
            reply = (wire.FAILED, wire.pack(*_described(error)))
        else:
            reply = (wire.OK, b"")
        if body is not None:
            body.drain()
        if kind != wire.EXEC or reply[0] == wire.FAILED:
            self._line.send(reply[0], call, reply[1])

    def _do(self, kind: int, call: int, fields: list[bytes], body: wire.Body | None) -> Iterable[bytes]:
        if kind == wire.EXEC:
            self._exec(call, fields)
        elif kind == wire.KILL:
            if self._runner.running is not None:
                self._finish()
        elif kind == wire.FREEZE:
            self._runner.freeze()
        elif kind == wire.THAW:
            self._runner.thaw()
        elif kind == wire.READ:
            return _pieces(files.read(self._roots, fields[0], int(fields[1])))
        elif kind == wire.WRITE and body is not None:
            files.write(self._roots, fields[0], body, executable=fields[1] == b"1")
        elif kind == wire.LIST:
            return _pieces(wire.pack(*files.listing(self._roots, fields[0], int(fields[1]))))
        elif kind == wire.FINGERPRINT:
            return (files.fingerprint(self._roots),)
        elif kind == wire.SNAPSHOT:
            return archive.snapshot(self._roots, int(fields[0]))
        elif kind == wire.RESTORE and body is not None:
            archive.restore(self._roots, body)
        elif kind != wire.PING:
            raise ValueError(f"unknown request {kind}")
        return ()

    def _exec(self, call: int, fields: list[bytes]) -> None:
        if self._runner.running is not None:
            raise ValueError("a command is running already")
        timeout, cwd, count, *rest = fields
        argv, variables = rest[: int(count)], rest[int(count) :]
        result = self._runner.start(
            call, float(timeout), cwd, argv, dict(zip(variables[::2], variables[1::2]))
        )
        if result is not None:
            self._line.send(wire.OK, call, wire.pack(*result))


def _pieces(data: bytes) -> Iterable[bytes]:
    return (data[at : at + wire.CHUNK_BYTES] for at in range(0, len(data), wire.CHUNK_BYTES))


def _described(error: Exception) -> tuple[bytes, bytes, bytes]:
    if isinstance(error, OSError):
        return b"os", b"%d" % (error.errno or 0), (error.strerror or str(error)).encode()
    kind = b"value" if isinstance(error, ValueError) else b"fault"
    return kind, b"0", f"{error}".encode("utf-8", "backslashreplace")


def _harden(*, namespace: bool) -> None:
    """Out of reach of commands that run as the same user; the first to go when memory is short."""
    libc = ctypes.CDLL(None)
    os.umask(0o022)
    _be_killed_first()
    libc.signal(SIGINT, _SIG_DFL)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(70)
    if not namespace and libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        os._exit(70)


def _be_killed_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(b"900")
    except OSError:
        pass


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (lowered, lowered))
