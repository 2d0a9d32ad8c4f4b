"""Where frames travel: anything that carries bytes both ways in order."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol, Self


class LineLost(Exception):
    """The other end is gone, or what was between; the sandbox may live on."""


class Line(Protocol):
    """One connection to a supervisor. Every method raises LineLost."""

    async def read_exactly(self, size: int) -> bytes: ...

    async def write(self, data: bytes) -> None:
        """Waits while the other end takes nothing."""

    async def close(self) -> None:
        """Never fails; who reads or writes meanwhile gets LineLost."""


class StreamLine:
    """The part of a `Line` over a connection of asyncio that does not depend on what arrives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise LineLost(str(error)) from error

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class SocketLine(StreamLine):
    """Implements `Line` over a Unix socket."""

    @classmethod
    async def over(cls, sock: socket.socket) -> Self:
        """Take over a connected socket."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    @classmethod
    async def to(cls, path: str) -> Self:
        """Connect to a listening socket. Raises LineLost when nobody listens there."""
        try:
            return cls(*await asyncio.open_unix_connection(path))
        except OSError as error:
            raise LineLost(f"{path}: {error.strerror or error}") from error

    async def read_exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LineLost("it ended") from error
