"""Connections carried over one line: by the program inside, and by the worker's end to a socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import wire
from zubble_sandbox.egress.carrier import WINDOW_BYTES, Carrier
from zubble_sandbox.line import LineLost, SocketLine

from .conftest import SANITIZER_OPTIONS

MIB = 1_048_576


class Ferry:
    """A carrier, what it serves, and the processes at the other end of its lines."""

    def __init__(self, program, folder) -> None:
        self._program, self.path = program, folder / "socket"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.processes: list[asyncio.subprocess.Process] = []
        self.served: asyncio.Queue = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def line(self) -> SocketLine:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(str(self._program), "carry", str(self.port)),
                stdin=theirs,
                stdout=theirs,
                stderr=asyncio.subprocess.PIPE,
                env=SANITIZER_OPTIONS,
            )
        self.processes.append(process)
        return await SocketLine.over(ours)

    def serve(self, reader, writer) -> None:
        self.writers.append(writer)
        self.served.put_nowait((reader, writer))

    async def dial(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def connect(self):
        """Both ends of a connection: the client's and the server's."""
        client = await self.dial()
        return client, await asyncio.wait_for(self.served.get(), 20)

    async def end(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the loop closes them in its next turn


@pytest.fixture
async def ferry(program, tmp_path):
    ferry = Ferry(program, tmp_path)
    server = await asyncio.start_unix_server(ferry.serve, str(ferry.path))
    carrier = await Carrier.open(ferry.line, ferry.path)
    yield ferry
    await ferry.end()
    await carrier.close()
    server.close()
    for process in ferry.processes:
        assert (await process.communicate())[1] == b""


async def test_bytes_go_both_ways_and_each_end_may_stop_first(ferry):
    (reader, writer), (asked, answer) = await ferry.connect()
    data = os.urandom(MIB)
    writer.write(data)
    writer.write_eof()
    assert await asked.read() == data
    answer.write(data[::-1])
    answer.write_eof()
    assert await reader.read() == data[::-1]
    (reader, writer), (asked, answer) = await ferry.connect()
    answer.write_eof()
    assert await reader.read() == b""
    writer.write(b"late")
    writer.write_eof()
    assert await asked.read() == b"late"


async def test_one_that_reads_nothing_holds_up_no_other(ferry):
    _, (_, pours) = await ferry.connect()
    pours.write(bytes(16 * MIB))
    (_, full), (unread, _) = await ferry.connect()
    full.write(bytes(16 * MIB))
    (reader, writer), (asked, answer) = await ferry.connect()
    data = os.urandom(MIB)
    answer.write(data)
    assert await asyncio.wait_for(reader.readexactly(MIB), 20) == data
    writer.write(data)
    assert await asyncio.wait_for(asked.readexactly(MIB), 20) == data
    assert len(await unread.readexactly(MIB)) == MIB, "and whoever reads again gets what was waiting"


async def test_an_end_that_breaks_off_ends_the_other(ferry):
    (_, writer), (asked, _) = await ferry.connect()
    writer.transport.abort()
    assert await asyncio.wait_for(_rest(asked), 20) == b""
    (reader, _), (_, answer) = await ferry.connect()
    answer.transport.abort()
    assert await asyncio.wait_for(_rest(reader), 20) == b""


async def test_a_lost_line_breaks_its_connections_and_another_is_opened(ferry):
    (reader, _), _ = await ferry.connect()
    ferry.processes[0].kill()
    await ferry.processes[0].wait()  # with it goes the socket that still took connections
    assert await asyncio.wait_for(_rest(reader), 20) == b""
    while True:
        with contextlib.suppress(ConnectionError):
            (reader, writer), (asked, _) = await ferry.connect()
            break
        await asyncio.sleep(0.05)
    writer.write(b"again")
    assert await asked.readexactly(5) == b"again"


async def test_of_more_connections_than_are_carried_some_wait(ferry):
    held = [await ferry.connect() for _ in range(64)]
    _, late = await ferry.dial()
    assert ferry.served.empty()
    for (_, writer), (_, answer) in held:
        writer.close()
        answer.close()
    late.write(b"now")
    asked, _ = await asyncio.wait_for(ferry.served.get(), 20)
    assert await asked.readexactly(3) == b"now"


@pytest.mark.parametrize(
    "frames",
    [
        wire.frame(wire.CHUNK, 1, bytes(WINDOW_BYTES)) * 300,
        (0xFFFFFFFF).to_bytes(4, "big") + bytes(5),
        wire.frame(wire.END, 1) + wire.frame(wire.CHUNK, 1, b"x"),
        wire.frame(wire.ROOM, 1, b"\xff" * 4),
        wire.frame(99, 1),
    ],
    ids=["more than fits", "a huge frame", "more after the end", "too much room", "an unknown kind"],
)
async def test_the_program_ends_at_frames_that_no_worker_sends(program, tmp_path, frames):
    ferry = Ferry(program, tmp_path)
    line = await ferry.line()
    assert await line.read_exactly(wire.HEADER_BYTES) == wire.frame(wire.OPENED, 0)
    await ferry.dial()
    assert await line.read_exactly(wire.HEADER_BYTES) == wire.frame(wire.OPENED, 1)
    with contextlib.suppress(LineLost):
        await line.write(wire.frame(wire.CHUNK, 7, b"for nobody") + wire.frame(wire.GONE, 7) + frames)
    assert await asyncio.wait_for(ferry.processes[0].communicate(), 20) == (None, b"")
    await ferry.end()
    await line.close()


class Told:
    """A line that gives what it was told, and then nothing."""

    def __init__(self, data: bytes) -> None:
        self._data, self.closed = bytearray(data), asyncio.Event()

    async def read_exactly(self, size: int) -> bytes:
        if len(self._data) < size:
            await self.closed.wait()
            raise LineLost("it ended")
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    async def write(self, data: bytes) -> None:
        pass

    async def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize(
    "frames",
    [
        b"".join(wire.frame(wire.OPENED, name) for name in range(1, 130)),
        wire.frame(wire.OPENED, 1) * 2,
        wire.frame(wire.OPENED, 1) + wire.frame(wire.CHUNK, 1, bytes(16_384)) * 5,
        wire.frame(wire.CHUNK, 1, bytes(20_000)),
        b"\xff" * 9,
    ],
    ids=["too many", "twice", "more than fits", "too large", "no frame"],
)
async def test_the_worker_leaves_a_line_that_says_what_no_program_of_ours_says(tmp_path, frames):
    lines = [Told(wire.frame(wire.OPENED, 0) + frames), Told(wire.frame(wire.OPENED, 0))]
    given = iter(lines)

    async def connect():
        return next(given)

    writers = []
    server = await asyncio.start_unix_server(
        lambda _, writer: writers.append(writer), str(tmp_path / "socket")
    )
    carrier = await Carrier.open(connect, tmp_path / "socket")
    await asyncio.wait_for(lines[0].closed.wait(), 20)
    assert not lines[1].closed.is_set()
    await carrier.close()
    assert lines[1].closed.is_set()
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def test_a_place_where_nothing_listens_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.egress.carrier._PAUSES", (0.0, 0.0))

    async def connect():
        return Told(wire.frame(wire.GONE, 0))

    with pytest.raises(SandboxUnavailable, match="it does not listen"):
        await Carrier.open(connect, tmp_path / "socket")


async def _rest(reader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
