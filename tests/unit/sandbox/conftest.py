"""The program itself, built with sanitizers, in a work tree without a sandbox around it."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from zubble_sandbox import wire
from zubble_sandbox.box import binary


@dataclass
class Supervisor:
    """A process in mode `tree`, the worker's end of its line, and the tree it serves."""

    process: subprocess.Popen
    sock: socket.socket
    work: Path

    def send(self, kind, call, *fields, body=None):
        self.sock.sendall(wire.frame(kind, call, wire.pack(*fields)))
        for frame in () if body is None else wire.body_frames(call, (body,)):
            self.sock.sendall(frame)

    def setup(self, *, life=60.0, mode=b"tree", call=1, background=b"0", linger=b"0"):
        limits = (b"64", b"1024", b"0", b"0")
        self.send(
            wire.SETUP, call, mode, b"%f" % life, *limits, linger, background, b"", b"0", b"",
            b"work", os.fsencode(self.work),
        )  # fmt: skip

    def run(self, call, text, *, seconds=b"60", name=None):
        command = (b"3", b"/bin/sh", b"-c", text, b"PATH=/usr/bin:/bin")
        self.send(wire.EXEC, call, name or b"command-%d" % call, seconds, b"/work", *command)

    def frame(self):
        length, kind, call = wire.parse_header(self.sock.recv(wire.HEADER_BYTES, socket.MSG_WAITALL))
        return kind, call, self.sock.recv(length, socket.MSG_WAITALL) if length else b""

    def answer(self):
        """The next answer with its data: kind, call, fields, data."""
        data = b""
        while (frame := self.frame())[0] == wire.CHUNK:
            data += frame[2]
        return frame[0], frame[1], wire.unpack(frame[2]), data

    def ask(self, kind, *fields, body=None):
        """The fields and the data of the answer. Raises OSError, ValueError."""
        self.send(kind, 7, *fields, body=body)
        outcome, call, answered, data = self.answer()
        assert call == 7
        if outcome == wire.OK:
            return answered, data
        if answered[0] == b"os":
            raise OSError(int(answered[1]), os.strerror(int(answered[1])))
        raise ValueError(answered[2].decode())


ROOT = Path(__file__).resolve().parents[3]
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SANITIZER_OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0"}
"""Finding leaks means to look into a process, and ours lets nobody."""


@pytest.fixture(scope="session")
def hatch_build():
    """The build hook as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def program(hatch_build, tmp_path_factory):
    """The program, stopping at whatever C leaves undefined; as it is where nothing compiles it."""
    command = hatch_build.compiler(hatch_build.native())
    if command is None:
        return binary()
    built = tmp_path_factory.mktemp("sanitized") / "zubble-box"
    flags = [flag for flag in hatch_build.FLAGS if flag not in {"-static", "-s", "-O2"}]
    try:
        hatch_build.build(command, built, (*flags, *SANITIZED))
    except subprocess.CalledProcessError:
        pytest.fail("the program does not compile with sanitizers (Debian has them in the package gcc)")
    return built


@pytest.fixture
def new_supervisor(tmp_path_factory, program):
    """Starts supervisors that are not set up yet."""
    started = []

    def start():
        work = tmp_path_factory.mktemp("tree") / "work"
        work.mkdir()
        (work.parent / "outside").write_text("outside")
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            (program, "supervise", "--fd", str(theirs.fileno()), "mark"),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
            env=SANITIZER_OPTIONS,
        )
        theirs.close()
        started.append(Supervisor(process, ours, work))
        return started[-1]

    yield start
    for one in started:
        one.sock.close()
        one.process.wait(timeout=60)
        assert one.process.communicate()[1] == b""


@pytest.fixture
def supervisor(new_supervisor):
    return new_supervisor()


@pytest.fixture
def served(supervisor):
    """One that is set up."""
    supervisor.setup()
    assert supervisor.answer()[:2] == (wire.OK, 1)
    return supervisor
