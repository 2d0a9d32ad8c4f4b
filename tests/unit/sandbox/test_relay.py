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
def listening():
    """A supervisor at an abstract name, which it and its secret are known by."""
    name, secret = f"@zubble-test-{secrets.token_hex(8)}", secrets.token_hex(16)
    key = hashlib.sha256(secret.encode()).hexdigest()
    process = subprocess.Popen(
        (binary(), "supervise", "--listen", name, "--key", key, "--linger", "30", "mark"), env={}
    )
    yield process, name, secret
    process.kill()
    process.wait()


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
