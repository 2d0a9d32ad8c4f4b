"""The worker's end of the line, against a supervisor that is not ours any more."""

from __future__ import annotations

import asyncio
import socket

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import channel as channels
from zubble_sandbox import wire
from zubble_sandbox.channel import Channel
from zubble_sandbox.line import LineLost, SocketLine


@pytest.fixture
async def line():
    """A channel, and the other end of it as reader and writer."""
    ours, theirs = socket.socketpair()
    channel = Channel(await SocketLine.over(ours))
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    yield channel, reader, writer
    await channel.close()
    writer.close()


async def next_call(reader) -> int:
    """The id of the next request, which is read to its end."""
    length, _, call = wire.parse_header(await reader.readexactly(wire.HEADER_BYTES))
    await reader.readexactly(length)
    return call


async def test_answers_find_their_calls_in_any_order(line):
    channel, reader, writer = line
    first = asyncio.create_task(channel.call(wire.READ, b"a", limit=10))
    one = await next_call(reader)
    second = asyncio.create_task(channel.call(wire.READ, b"b", limit=10))
    two = await next_call(reader)
    for call in (two, one):
        writer.write(
            wire.frame(wire.CHUNK, call, b"%d" % call) + wire.frame(wire.OK, call, wire.pack(b"field"))
        )
    assert await second == ([b"field"], b"%d" % two)
    assert await first == ([b"field"], b"%d" % one)


async def test_a_body_is_sent_in_chunks_with_an_end(line):
    channel, reader, writer = line
    body = b"x" * (wire.CHUNK_BYTES + 1)
    call = asyncio.create_task(channel.call(wire.WRITE, b"path", body=(body,)))
    kinds, received = [], b""
    while wire.END not in kinds:
        length, kind, call_id = wire.parse_header(await reader.readexactly(wire.HEADER_BYTES))
        payload = await reader.readexactly(length)
        kinds.append(kind)
        received += payload if kind == wire.CHUNK else b""
    writer.write(wire.frame(wire.OK, call_id))
    await call
    assert kinds == [wire.WRITE, wire.CHUNK, wire.CHUNK, wire.END]
    assert received == body


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ((b"os", b"2", b"No such file"), FileNotFoundError),
        ((b"os", b"21", b"Is a directory"), IsADirectoryError),
        ((b"value", b"0", b"too large"), ValueError),
    ],
)
async def test_a_failure_is_raised_as_what_it_is(line, fields, kind):
    channel, reader, writer = line
    call = asyncio.create_task(channel.call(wire.READ))
    writer.write(wire.frame(wire.FAILED, await next_call(reader), wire.pack(*fields)))
    with pytest.raises(kind):
        await call


async def test_an_answer_to_nobody_is_ignored(line):
    channel, reader, writer = line
    call = asyncio.create_task(channel.call(wire.PING))
    call_id = await next_call(reader)
    writer.write(
        wire.frame(wire.OK, call_id + 1)
        + wire.frame(wire.CHUNK, call_id + 2, b"x")
        + wire.frame(wire.OK, call_id)
    )
    assert await call == ([], b"")


@pytest.mark.parametrize(
    "attack",
    [
        lambda call: (1 << 30).to_bytes(4, "big") + bytes(5),
        lambda call: wire.frame(wire.CHUNK, call, b"x" * 11),
        lambda call: wire.frame(wire.EXEC, call),
        lambda call: wire.frame(99, call),
        lambda call: wire.frame(wire.OK, call, b"\xff\xff\xff\xff"),
        lambda call: wire.frame(wire.OK, call, wire.pack(bytes(2_000_000))),
        lambda call: wire.frame(wire.FAILED, call),
        lambda call: wire.frame(wire.FAILED, call, wire.pack(b"os", b"no number", b"")),
    ],
)
async def test_a_supervisor_that_breaks_the_protocol_is_a_lost_sandbox(line, attack):
    channel, reader, writer = line
    call = asyncio.create_task(channel.call(wire.READ, limit=10))
    writer.write(attack(await next_call(reader)))
    with pytest.raises(SandboxUnavailable, match="protocol"):
        await call
    with pytest.raises(SandboxUnavailable, match="protocol"):
        await channel.call(wire.PING)


async def test_a_supervisor_that_ends_fails_every_call_that_waits(line):
    channel, reader, writer = line
    calls = [asyncio.create_task(channel.call(wire.PING)) for _ in range(3)]
    for _ in calls:
        await next_call(reader)
    writer.write(b"\0\0")
    writer.close()
    for call in calls:
        with pytest.raises(SandboxUnavailable, match="ended"):
            await call


async def test_closing_fails_the_calls_that_wait_and_those_that_come(line):
    channel, reader, _ = line
    call = asyncio.create_task(channel.call(wire.PING))
    await next_call(reader)
    await channel.close()
    with pytest.raises(SandboxUnavailable, match="destroyed"):
        await call
    with pytest.raises(SandboxUnavailable, match="destroyed"):
        await channel.call(wire.PING)


async def test_a_cancelled_call_is_forgotten(line):
    channel, reader, writer = line
    call = asyncio.create_task(channel.call(wire.PING))
    call_id = await next_call(reader)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    writer.write(wire.frame(wire.OK, call_id))
    again = asyncio.create_task(channel.call(wire.PING))
    writer.write(wire.frame(wire.OK, await next_call(reader)))
    await again


async def test_a_message_whose_caller_gave_up_is_sent_to_its_end(line):
    channel, reader, writer = line
    body = bytes(20 * wire.CHUNK_BYTES)
    call = asyncio.create_task(channel.call(wire.WRITE, b"path", body=(body,)))
    await next_call(reader)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    again = asyncio.create_task(channel.call(wire.PING))
    received, kind = 0, wire.CHUNK
    while kind != wire.END:
        length, kind, _ = wire.parse_header(await reader.readexactly(wire.HEADER_BYTES))
        received += len(await reader.readexactly(length))
    assert received == len(body)
    writer.write(wire.frame(wire.OK, await next_call(reader)))
    await again


class Switchboard:
    """Lines that break and are opened again: the other ends, in the order of their opening."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.refusals: list[Exception] = []
        self.tries = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> SocketLine:
        self.tries += 1
        if self.refusals:
            raise self.refusals.pop(0)
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        self._writers.append(writer)
        self.ends.put_nowait((reader, writer))
        return await SocketLine.over(ours)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
async def board(monkeypatch):
    monkeypatch.setattr(channels, "_RETRY_SECONDS", (0.0, 0.01))
    board = Switchboard()
    yield board
    board.close()


@pytest.fixture
async def again(board):
    """A channel that opens another line when it has lost one."""
    channel = Channel(await board.open(), board.open)
    yield channel
    await channel.close()


async def test_a_call_that_waits_is_sent_anew_over_another_line(board, again):
    body = b"x" * (wire.CHUNK_BYTES + 1)
    call = asyncio.create_task(again.call(wire.RESTORE, body=(body,), limit=10))
    reader, writer = await board.ends.get()
    call_id = await next_call(reader)
    writer.write(wire.frame(wire.CHUNK, call_id, b"half"))
    writer.close()
    reader, writer = await board.ends.get()
    assert await next_call(reader) == call_id
    received, kind = b"", wire.CHUNK
    while kind != wire.END:
        length, kind, _ = wire.parse_header(await reader.readexactly(wire.HEADER_BYTES))
        received += await reader.readexactly(length)
    assert received == body
    writer.write(wire.frame(wire.CHUNK, call_id, b"whole") + wire.frame(wire.OK, call_id))
    assert await call == ([], b"whole")


async def test_a_line_that_is_lost_while_nobody_calls_is_opened_for_the_next_call(board, again):
    _, writer = await board.ends.get()
    writer.close()
    reader, writer = await board.ends.get()
    call = asyncio.create_task(again.call(wire.PING))
    writer.write(wire.frame(wire.OK, await next_call(reader)))
    await call


async def test_a_call_that_was_given_up_is_not_sent_anew(board, again):
    first = asyncio.create_task(again.call(wire.READ))
    reader, writer = await board.ends.get()
    await next_call(reader)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    writer.close()
    reader, writer = await board.ends.get()
    second = asyncio.create_task(again.call(wire.PING))
    length, kind, call_id = wire.parse_header(await reader.readexactly(wire.HEADER_BYTES))
    assert (length, kind) == (0, wire.PING)
    writer.write(wire.frame(wire.OK, call_id))
    await second


async def test_it_is_tried_again_until_there_is_a_line(board, again):
    board.refusals = [LineLost("not yet"), LineLost("not yet")]
    call = asyncio.create_task(again.call(wire.PING))
    reader, writer = await board.ends.get()
    await next_call(reader)
    writer.close()
    reader, writer = await board.ends.get()
    writer.write(wire.frame(wire.OK, await next_call(reader)))
    await call
    assert board.tries == 4


async def test_a_line_that_stays_lost_is_a_lost_sandbox_and_says_why(board, again, monkeypatch):
    monkeypatch.setattr(channels, "RECONNECT_SECONDS", 0.1)
    board.refusals = [LineLost("nobody listens")] * 1_000
    call = asyncio.create_task(again.call(wire.PING))
    reader, writer = await board.ends.get()
    await next_call(reader)
    writer.close()
    with pytest.raises(SandboxUnavailable, match="nobody listens"):
        await call


async def test_nothing_is_tried_again_where_there_is_nothing_to_connect_to(board, again):
    board.refusals = [SandboxUnavailable("The pod is gone.")]
    call = asyncio.create_task(again.call(wire.PING))
    reader, writer = await board.ends.get()
    await next_call(reader)
    writer.close()
    with pytest.raises(SandboxUnavailable, match="The pod is gone"):
        await call
    assert board.tries == 2
