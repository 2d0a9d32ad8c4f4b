"""The streams of `docker exec`, taken over from the engine: our bytes inside its frames."""

from __future__ import annotations

import asyncio
import json
from typing import Final, Self

from zubble_sandbox.line import LineLost, StreamLine

HEADER_BYTES: Final = 8
"""Of the engine: one byte says which stream, then three zeros, then the length in four bytes."""
MAX_FRAME_BYTES: Final = 4 * 1_048_576
"""A larger one breaks the line; engines send 32 KiB at a time."""
STDOUT: Final = 1
COMPLAINT_BYTES: Final = 600
_BODY_BYTES: Final = 65_536
_TAKEN_OVER: Final = frozenset({101, 200})


class ExecRefused(Exception):
    """The engine did not start the program; the message is its own."""


class DockerLine(StreamLine):
    """What a program in a container prints, and its standard input; implements `zubble_sandbox.line.Line`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._ready = bytearray()
        self._said = bytearray()

    @classmethod
    async def take_over(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str, exec_id: str
    ) -> Self:
        """Start a prepared exec on a fresh connection to the engine, which becomes its streams.

        Raises ExecRefused or LineLost; the connection is closed then.
        """
        line = cls(reader, writer)
        try:
            await line._begin(version, exec_id)
        except BaseException:
            await line.close()
            raise
        return line

    def complaint(self) -> str:
        """The end of what the program wrote on standard error."""
        return self._said.decode(errors="replace").strip()

    async def read_exactly(self, size: int) -> bytes:
        while len(self._ready) < size:
            await self._next_frame()
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    async def _begin(self, version: str, exec_id: str) -> None:
        await self.write(_request(version, exec_id))
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            refusal = b"" if status in _TAKEN_OVER else await self._reader.read(_BODY_BYTES)
        except (
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            IndexError,
            ValueError,
            OSError,
        ) as error:
            raise LineLost("the engine broke off") from error
        if status not in _TAKEN_OVER:
            raise ExecRefused(_message(refusal))

    async def _next_frame(self) -> None:
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
            size = int.from_bytes(header[4:], "big")
            if size > MAX_FRAME_BYTES:
                raise LineLost(f"the engine sent a frame of {size} bytes")
            data = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LineLost(self.complaint() or "the relay in the container ended") from error
        if header[0] == STDOUT:
            self._ready += data
        else:
            self._said = (self._said + data)[-COMPLAINT_BYTES:]


def _request(version: str, exec_id: str) -> bytes:
    body = json.dumps({"Detach": False, "Tty": False})
    lines = (
        f"POST /v{version}/exec/{exec_id}/start HTTP/1.1",
        "Host: docker",
        "Content-Type: application/json",
        "Connection: Upgrade",
        "Upgrade: tcp",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", body)).encode()


def _message(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text or "it does not say why"
