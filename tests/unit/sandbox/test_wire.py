"""The frames between a worker and a supervisor."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_sandbox.supervisor import wire


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_fields_survive_packing(fields):
    assert wire.unpack(wire.pack(*fields)) == fields


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_fields_or_a_value_error(payload):
    try:
        fields = wire.unpack(payload)
    except ValueError:
        return
    assert wire.pack(*fields) == payload


def test_a_field_longer_than_its_frame_is_an_error():
    with pytest.raises(ValueError, match="longer"):
        wire.unpack(b"\0\0\0\5abcd")
    with pytest.raises(ValueError, match="longer"):
        wire.unpack(b"\0\0")


def test_a_header_says_length_kind_and_call():
    frame = wire.frame(wire.EXEC, 7, b"payload")
    assert wire.parse_header(frame[: wire.HEADER_BYTES]) == (7, wire.EXEC, 7)
    assert frame[wire.HEADER_BYTES :] == b"payload"


def test_a_frame_of_a_gigabyte_is_refused_by_its_header():
    header = (1 << 30).to_bytes(4, "big") + bytes(5)
    with pytest.raises(ValueError, match="over"):
        wire.parse_header(header)


@pytest.fixture
def line():
    """A supervisor's line and the worker's end of it."""
    ours, theirs = socket.socketpair()
    yield wire.Line(theirs.fileno()), ours
    ours.close()
    theirs.close()


def test_a_frame_that_arrives_in_pieces_is_whole(line):
    supervisor, worker = line
    frame = wire.frame(wire.READ, 3, b"x" * 1_000)

    def trickle():
        for start in range(0, len(frame), 100):
            worker.sendall(frame[start : start + 100])

    thread = threading.Thread(target=trickle)
    thread.start()
    assert supervisor.receive() == (wire.READ, 3, b"x" * 1_000)
    thread.join()


def test_a_worker_that_is_gone_closes_the_line(line):
    supervisor, worker = line
    worker.sendall(b"\0\0\0")
    worker.close()
    with pytest.raises(wire.Closed):
        supervisor.receive()
    with pytest.raises(wire.Closed):
        supervisor.send(wire.CHUNK, 1, bytes(1_048_576))


def test_a_silent_worker_is_waited_for_until_the_end_of_life(line):
    supervisor, _ = line
    supervisor.end_of_life = 0.0
    with pytest.raises(wire.Closed):
        supervisor.receive()


def test_a_worker_that_does_not_read_is_waited_for_until_the_end_of_life(line):
    supervisor, _ = line
    supervisor.end_of_life = 0.0
    with pytest.raises(wire.Closed):
        supervisor.send(wire.CHUNK, 1, bytes(4 * 1_048_576))


def test_a_body_is_read_in_any_portion_and_left_at_its_end(line):
    supervisor, worker = line
    worker.sendall(
        wire.frame(wire.CHUNK, 9, b"abc") + wire.frame(wire.CHUNK, 9, b"defg") + wire.frame(wire.END, 9)
    )
    worker.sendall(wire.frame(wire.PING, 10))
    body = wire.Body(supervisor, 9)
    assert [body.read(size) for size in (2, 3, 100, 1)] == [b"ab", b"cde", b"fg", b""]
    assert supervisor.receive() == (wire.PING, 10, b"")


def test_what_is_left_of_a_body_can_be_skipped(line):
    supervisor, worker = line
    worker.sendall(
        wire.frame(wire.CHUNK, 9, b"abc") + wire.frame(wire.CHUNK, 9, b"def") + wire.frame(wire.END, 9)
    )
    worker.sendall(wire.frame(wire.PING, 10))
    body = wire.Body(supervisor, 9)
    body.read(1)
    body.drain()
    assert supervisor.receive() == (wire.PING, 10, b"")


def test_a_frame_of_another_call_within_a_body_ends_everything(line):
    supervisor, worker = line
    worker.sendall(wire.frame(wire.CHUNK, 8, b"abc"))
    with pytest.raises(wire.Closed):
        wire.Body(supervisor, 9).read(1)


def test_the_line_is_not_inherited(line):
    supervisor, _ = line
    assert not os.get_inheritable(supervisor.fd)
