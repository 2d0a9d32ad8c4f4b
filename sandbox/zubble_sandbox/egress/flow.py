"""Bytes on their way: bounded buffers, counted, and ended when nothing moves any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from zubble_sandbox.egress.outside import BUFFER_BYTES
from zubble_sandbox.egress.tally import Count

FLUSH_SECONDS: Final = 5.0
"""How long the other side may take for what is still in its buffer at the end."""
_REST_BYTES: Final = 262_144
_REST_SECONDS: Final = 1.0

_Moved = Callable[[int], None]


class Line:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self._writer.write_eof()

    async def say_farewell(self, data: bytes) -> None:
        """Send a last answer and see that it arrives."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_REST_SECONDS):
                await self.send(data)
                self.finish()
        await self.linger()

    async def linger(self) -> None:
        """After `finish`: take a little of what still comes, which would destroy what was sent last."""
        left = _REST_BYTES
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_REST_SECONDS):
                while left > 0 and (rest := await self.reader.read(BUFFER_BYTES)):
                    left -= len(rest)

    def abort(self) -> None:
        """End it now; whoever reads from it meets the end."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Give the last bytes their time, then end it."""
        try:
            self._writer.close()
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._writer.wait_closed()
        except OSError:
            pass
        finally:
            self.abort()


class Flow:
    """What moves between two lines.

    Args:
        client: The sandbox's.
        server: The host's.
        count: Where bytes are counted, as they move.
        idle_seconds: After so long without a byte in either direction it is over.
    """

    def __init__(self, client: Line, server: Line, count: Count, idle_seconds: float) -> None:
        self._client, self._server, self._count = client, server, count
        self._idle_seconds = idle_seconds
        self._idle = asyncio.timeout(idle_seconds)

    async def tunnel(self) -> None:
        """Both directions, until both have ended or one has broken."""
        try:
            async with self._idle, asyncio.TaskGroup() as directions:
                directions.create_task(_carry(self._client, self._server, self._sent))
                directions.create_task(_carry(self._server, self._client, self._received))
        except* OSError:
            pass

    async def exchange(self, body_bytes: int) -> None:
        """A body of exactly so many bytes, and the answer until its end; then it is over.

        An answer may come before the whole body has; it is not lost then.
        """
        body = asyncio.create_task(self._body(body_bytes))
        try:
            async with self._idle:
                await _carry(self._server, self._client, self._received)
        except OSError:
            return
        finally:
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
        await self._client.linger()

    async def _body(self, left: int) -> None:
        """A host that wants no more of it may still answer; a client that breaks off gets no answer."""
        while left:
            piece = await self._client.reader.read(min(left, BUFFER_BYTES))
            if not piece:
                self._server.abort()
                return
            left -= len(piece)
            await self._server.send(piece)
            self._sent(len(piece))

    def _sent(self, size: int) -> None:
        self._count.sent_bytes += size
        self._touch()

    def _received(self, size: int) -> None:
        self._count.received_bytes += size
        self._touch()

    def _touch(self) -> None:
        self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)


async def _carry(source: Line, sink: Line, moved: _Moved) -> None:
    while piece := await source.reader.read(BUFFER_BYTES):
        await sink.send(piece)
        moved(len(piece))
    sink.finish()
