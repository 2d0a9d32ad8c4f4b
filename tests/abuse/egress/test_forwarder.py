"""Attack 71 on the forwarder, by which a socket is http://127.0.0.1:PORT: clients wait, pour and vanish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path

import pytest

from zubble_sandbox import box

MOST = 64
MIB = 1_048_576


class Forwarded:
    """The forwarder before a server that a test drives."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port
        self.served: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.more = asyncio.Event()

    def serve(self, reader, writer) -> None:
        self.served.append((reader, writer))
        self.more.set()

    async def connect(self):
        """Both ends of a connection: the client's and the server's."""
        self.more.clear()
        client = await asyncio.open_connection("127.0.0.1", self.port)
        await self.more.wait()
        return client, self.served[-1]

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1_024


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
async def forwarded(tmp_path):
    path, port = tmp_path / "socket", free_port()
    process = await asyncio.create_subprocess_exec(box.binary(), "forward", str(port), path)
    forwarded = Forwarded(process.pid, port)
    server = await asyncio.start_unix_server(forwarded.serve, path)
    await until(lambda: listens(port), "the forwarder listened")
    yield forwarded
    process.kill()
    await process.wait()
    server.close()
    for _, writer in forwarded.served:
        writer.close()


def listens(port: int) -> bool:
    return f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text()


async def until(condition, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.02)


async def test_bytes_go_both_ways_and_each_end_may_stop_first(forwarded):
    (reader, writer), (asked, answer) = await forwarded.connect()
    data = os.urandom(MIB)
    writer.write(data)
    writer.write_eof()
    assert await asked.read() == data
    answer.write(data[::-1])
    await answer.drain()
    answer.write_eof()
    assert await reader.read() == data[::-1]
    writer.close()
    answer.close()


async def test_clients_that_say_nothing_are_gone_when_the_proxy_has_closed_on_them(forwarded):
    quiet = forwarded.files
    held = [await forwarded.connect() for _ in range(MOST)]
    assert forwarded.files == quiet + 2 * MOST
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarded.port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b"", "one too many is closed at once"
    writer.close()
    for (reader, _), (_, answer) in held:
        answer.close()
        assert await reader.read() == b""
    await until(lambda: forwarded.files == quiet, "silent clients were let go")
    (reader, writer), (_, answer) = await forwarded.connect()
    answer.write(b"control")
    answer.close()
    assert await reader.read() == b"control"
    writer.close()
    for (_, writer), _ in held:
        writer.close()


async def test_a_client_that_pours_meets_its_end_in_bounded_room(forwarded):
    (_, writer), _ = await forwarded.connect()
    before, piece, taken = forwarded.resident_bytes, bytes(65_536), 0
    with contextlib.suppress(TimeoutError):
        while taken < 1_024 * MIB:
            writer.write(piece)
            async with asyncio.timeout(0.5):
                await writer.drain()
            taken += len(piece)
    assert taken < 64 * MIB, "what the kernel's buffers of two sockets hold"
    assert forwarded.resident_bytes - before < MIB
    writer.transport.abort()


async def test_clients_that_vanish_leave_nothing(forwarded):
    quiet = forwarded.files
    for _ in range(3 * MOST):
        (_, writer), (_, answer) = await forwarded.connect()
        writer.transport.abort()
        answer.close()
    await until(lambda: forwarded.files == quiet, "every descriptor was given back")


async def test_without_a_proxy_a_connection_is_closed_at_once(forwarded, tmp_path):
    (tmp_path / "socket").unlink()
    reader, writer = await asyncio.open_connection("127.0.0.1", forwarded.port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
