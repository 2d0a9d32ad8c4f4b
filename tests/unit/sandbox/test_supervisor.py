"""The supervisor as a program of its own."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from importlib import resources

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import bundle
from zubble_sandbox.supervisor import wire

SOURCES = {
    name: (resources.files("zubble_sandbox.supervisor") / f"{name}.py").read_text()
    for name in bundle._MODULES
}
FAST = {"_ctypes", "_signal", "errno", "os", "resource", "select", "stat", "time", "__future__"}
"""What may be imported before a sandbox is open."""


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_is_python_3_9(name):
    ast.parse(SOURCES[name], feature_version=(3, 9))


@pytest.mark.parametrize("name", SOURCES)
def test_only_what_starts_fast_is_imported_at_the_start(name):
    imported = set()
    for node in ast.parse(SOURCES[name]).body:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    ours = {module for module in imported if module.startswith("zubble_sandbox.supervisor")}
    assert imported - ours <= FAST


@pytest.fixture
def supervisor():
    """A process without a namespace, and the worker's end of its line."""
    ours, theirs = socket.socketpair()
    code = bundle.memory_file(bundle.compiled(sys.executable), "code")
    process = subprocess.Popen(
        bundle.launch(sys.executable, theirs.fileno(), "mark"),
        stdin=code,
        pass_fds=(theirs.fileno(),),
        stderr=subprocess.PIPE,
        env={},
    )
    os.close(code)
    theirs.close()
    yield process, ours
    ours.close()
    process.kill()
    process.communicate()


def setup(tmp_path, life=60.0, mode=b"tree"):
    numbers = (b"%f" % life, b"64", b"1024", b"1000000", b"1000000000")
    return wire.frame(wire.SETUP, 1, wire.pack(mode, *numbers, b"work", os.fsencode(tmp_path)))


def answer(sock):
    length, kind, call = wire.parse_header(sock.recv(wire.HEADER_BYTES, socket.MSG_WAITALL))
    return kind, call, wire.unpack(sock.recv(length, socket.MSG_WAITALL) if length else b"")


def run(call, text, seconds=b"60"):
    return wire.frame(wire.EXEC, call, wire.pack(seconds, b"/work", b"3", b"/bin/sh", b"-c", text))


def test_it_ends_with_its_line_and_ends_what_it_started(supervisor, tmp_path):
    process, sock = supervisor
    sock.sendall(setup(tmp_path))
    assert answer(sock)[:2] == (wire.OK, 1)
    sock.sendall(run(2, b"sleep 1000 & echo $! >child; sleep 1000"))
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
        assert process.poll() is None
    child = int((tmp_path / "child").read_text())
    os.kill(child, 0)
    sock.close()
    assert process.wait(timeout=60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_it_ends_when_its_life_is_over(supervisor, tmp_path):
    process, sock = supervisor
    sock.sendall(setup(tmp_path, life=0.3))
    assert answer(sock)[:2] == (wire.OK, 1)
    sock.sendall(run(2, b"sleep 1000"))
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff" * 9, b"\0\0\0", wire.frame(wire.EXEC, 1), wire.frame(wire.OK, 1)]
)
def test_garbage_in_place_of_a_greeting_ends_it(supervisor, garbage):
    process, sock = supervisor
    sock.sendall(garbage)
    sock.shutdown(socket.SHUT_WR)
    process.wait(timeout=60)


def test_it_ends_rather_than_signal_all_when_it_is_not_the_first_process(supervisor, tmp_path):
    process, sock = supervisor
    sock.sendall(setup(tmp_path, mode=b"namespace"))
    assert process.wait(timeout=60) == 71


def test_a_request_it_does_not_know_is_answered(supervisor, tmp_path):
    _, sock = supervisor
    sock.sendall(setup(tmp_path) + wire.frame(77, 2) + wire.frame(wire.PING, 3))
    assert [answer(sock)[:2] for _ in range(3)] == [(wire.OK, 1), (wire.FAILED, 2), (wire.OK, 3)]


def test_a_second_command_is_refused_while_one_runs(supervisor, tmp_path):
    _, sock = supervisor
    sock.sendall(setup(tmp_path) + run(2, b"sleep 1000") + run(3, b"true") + wire.frame(wire.KILL, 4))
    answers = {call: kind for kind, call, _ in (answer(sock) for _ in range(4))}
    assert answers == {1: wire.OK, 2: wire.OK, 3: wire.FAILED, 4: wire.OK}


def test_files_are_served_while_a_command_runs(supervisor, tmp_path):
    _, sock = supervisor
    (tmp_path / "file").write_text("content")
    sock.sendall(
        setup(tmp_path) + run(2, b"sleep 1000") + wire.frame(wire.READ, 3, wire.pack(b"file", b"100"))
    )
    assert answer(sock)[:2] == (wire.OK, 1)
    length, kind, call = wire.parse_header(sock.recv(wire.HEADER_BYTES, socket.MSG_WAITALL))
    assert (kind, call, sock.recv(length, socket.MSG_WAITALL)) == (wire.CHUNK, 3, b"content")


def test_an_interpreter_that_cannot_compile_it_is_named(tmp_path):
    with pytest.raises(SandboxUnavailable, match="no-python"):
        bundle.compiled(str(tmp_path / "no-python"))
    (tmp_path / "broken").write_text("#!/bin/sh\necho too old >&2\nexit 1\n")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="too old"):
        bundle.compiled(str(tmp_path / "broken"))
