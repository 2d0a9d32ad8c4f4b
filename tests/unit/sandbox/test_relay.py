"""A supervisor that is reached through a relay, by whoever knows its secret."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess

import pytest

from zubble_sandbox import wire
from zubble_sandbox.box import binary


class Relay:
    """One connection: a relay's streams."""

    def __init__(self, name):
        self.process = subprocess.Popen(
            (binary(), "relay", name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
        )

    def send(self, kind, call, payload=b""):
        self.process.stdin.write(wire.frame(kind, call, payload))
        self.process.stdin.flush()

    def answer(self):
        """Kind and call; None at the end."""
        header = self.process.stdout.read(wire.HEADER_BYTES)
        if not header:
            return None
        length, kind, call = wire.parse_header(header)
        self.process.stdout.read(length)
        return kind, call

    def ask(self, kind, call, payload=b""):
        self.send(kind, call, payload)
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def listen(program):
    """Starts supervisors at an abstract name, to be known by a secret."""
    started = []

    def listen(secret=None):
        name, secret = f"@zubble-test-{secrets.token_hex(8)}", secret or secrets.token_hex(16)
        key = hashlib.sha256(secret.encode()).hexdigest()
        process = subprocess.Popen(
            (program, "supervise", "--listen", name, "--key", key, "--linger", "30", "mark"),
            stderr=subprocess.PIPE,
            env={"ASAN_OPTIONS": "detect_leaks=0"},
        )
        started.append(process)
        return process, name, secret

    yield listen
    for process in started:
        process.kill()
        assert process.communicate()[1] == b""


@pytest.fixture
def listening(listen):
    return listen()


@pytest.fixture
def connect(listening):
    """Opens relays to it."""
    opened = []

    def connect():
        opened.append(Relay(listening[1]))
        return opened[-1]

    yield connect
    for relay in opened:
        relay.close()


def setup_fields(work):
    limits = (b"60", b"64", b"1024", b"0", b"0", b"30", b"0", b"", b"0", b"")
    return wire.pack(b"tree", *limits, b"work", os.fsencode(work))


def test_only_who_knows_the_secret_is_heard(listening, connect, tmp_path):
    assert connect().ask(wire.AUTH, 1, b"wrong") is None
    assert connect().ask(wire.SETUP, 1, setup_fields(tmp_path)) is None
    relay = connect()
    assert relay.ask(wire.AUTH, 1, listening[2].encode()) == (wire.OK, 1)
    assert relay.ask(wire.SETUP, 2, setup_fields(tmp_path)) == (wire.OK, 2)


def test_the_newest_connection_counts(listening, connect, tmp_path):
    first, second = connect(), connect()
    for relay in (first, second):
        assert relay.ask(wire.AUTH, 1, listening[2].encode()) == (wire.OK, 1)
        assert relay.ask(wire.SETUP, 2, setup_fields(tmp_path)) == (wire.OK, 2)
    assert first.answer() is None
    assert second.ask(wire.PING, 3) == (wire.OK, 3)


def test_it_ends_at_once_when_told_to_leave(listening, connect, tmp_path):
    relay = connect()
    relay.ask(wire.AUTH, 1, listening[2].encode())
    relay.ask(wire.SETUP, 2, setup_fields(tmp_path))
    assert relay.ask(wire.LEAVE, 3) == (wire.OK, 3)
    assert listening[0].wait(timeout=20) == 0


def test_a_name_that_is_taken_cannot_be_taken_over(listening, connect):
    assert connect().ask(wire.AUTH, 1, listening[2].encode()) == (wire.OK, 1), "control: it listens"
    other = (binary(), "supervise", "--listen", listening[1], "--key", "0" * 64, "--linger", "1", "mark")
    refused = subprocess.run(other, env={}, capture_output=True, timeout=20, check=False)
    assert refused.returncode == 70
    assert b"in use" in refused.stderr


@pytest.mark.parametrize("size", [1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 256])
def test_a_secret_of_any_length_is_known_by_its_hash(listen, size):
    _, name, secret = listen("s" * size)
    wrong, right = Relay(name), Relay(name)
    try:
        assert wrong.ask(wire.AUTH, 1, b"S" + secret[1:].encode()) is None
        assert right.ask(wire.AUTH, 1, secret.encode()) == (wire.OK, 1)
    finally:
        wrong.close()
        right.close()


def test_connections_that_say_nothing_keep_nobody_out(listening, connect, tmp_path):
    for _ in range(20):
        idle = connect()
        idle.process.stdin.write(b"\0\0\0\1")  # half a header
        idle.process.stdin.flush()
    relay = connect()
    assert relay.ask(wire.AUTH, 1, listening[2].encode()) == (wire.OK, 1)
    assert relay.ask(wire.SETUP, 2, setup_fields(tmp_path)) == (wire.OK, 2)


def test_a_command_goes_on_without_its_line_and_is_not_started_twice(listening, connect, tmp_path):
    command = wire.pack(
        *(b"once", b"60", b"/work", b"3", b"/bin/sh", b"-c", b"echo x >>began; sleep 0.5; exit 7", b"A=b")
    )
    first = connect()
    first.ask(wire.AUTH, 1, listening[2].encode())
    first.ask(wire.SETUP, 2, setup_fields(tmp_path))
    first.send(wire.EXEC, 3, command)
    while not (tmp_path / "began").exists():
        assert first.process.poll() is None
    first.close()
    second = connect()
    second.ask(wire.AUTH, 1, listening[2].encode())
    second.send(wire.EXEC, 4, command)
    assert second.answer() == (wire.OK, 4)
    assert (tmp_path / "began").read_text() == "x\n"
