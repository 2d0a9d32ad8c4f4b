"""A wire tap between some processes and the server: it can stop a process in the middle of one command.

It passes bytes on, and knows by the kernel who sent them. A trap waits for one script: with `request` the
command does not reach the server; with `reply` it takes effect and its answer does not come back. What
happens to the process is up to who set the trap.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from zubble_queue.stores import scripts

Side = Literal["request", "reply"]
_CHUNK: Final = 65_536
_SHA_CHARS: Final = 40
_CREDENTIALS: Final = struct.Struct("3i")


def sha_of(script: str) -> bytes:
    """What EVALSHA names the store's script by."""
    return hashlib.sha1(dict(scripts.sources())[script].encode()).hexdigest().encode()


def _anybody(_pid: int) -> bool:
    return True


@dataclass(eq=False)
class Trap:
    """Springs once."""

    sha: bytes
    side: Side
    spring: Callable[[int], None]
    """Called with the process id the moment the trap springs."""
    wants: Callable[[int], bool] = _anybody
    """Only for such processes, by their ids."""
    mark: bytes = b""
    """Only a command that holds these bytes as well."""
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it to let what is held pass after all."""
    caught: int = 0
    off: bool = False
    """Its time is over."""


class Tap:
    """Listens on a socket of its own; a context manager's work is done by start and stop."""

    def __init__(self, path: Path, server: Path) -> None:
        self._path, self._server_path = path, server
        self._traps: list[Trap] = []
        self._listener: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    async def start(self) -> None:
        self._listener = await asyncio.start_unix_server(self._connected, self._path)

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def catch(self, trap: Trap, seconds: float) -> bool:
        """Set a trap; whether it sprang in time. Afterwards it is gone."""
        self._traps.append(trap)
        try:
            await asyncio.wait_for(trap.sprung.wait(), seconds)
        except TimeoutError:
            trap.off = True
            return False
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            await self._carry(reader, writer)
        finally:
            self._lines.discard(line)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on both ways until one side leaves."""
        with contextlib.suppress(OSError):
            from_server, to_server = await asyncio.open_unix_connection(self._server_path)
            wire = _Wire(_peer(writer), self._traps)
            pumps = [
                asyncio.create_task(wire.requests(reader, to_server)),
                asyncio.create_task(wire.replies(from_server, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                to_server.close()


class _Wire:
    """One connection. Clients send a command and wait for its answer, so the next answer is its own."""

    def __init__(self, pid: int, traps: list[Trap]) -> None:
        self._pid, self._traps = pid, traps
        self._awaited: Trap | None = None

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = b""
        while data := await reader.read(_CHUNK):
            seen = seen[-(_SHA_CHARS - 1) :] + data
            trap = self._sprung_by(seen)
            if trap is not None and trap.side == "request":
                await self._hold(trap)
            elif trap is not None:
                self._awaited = trap
            writer.write(data)
            await writer.drain()

    async def replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if (trap := self._awaited) is not None:
                self._awaited = None
                await self._hold(trap)
            writer.write(data)
            await writer.drain()

    def _sprung_by(self, seen: bytes) -> Trap | None:
        self._traps[:] = [trap for trap in self._traps if not trap.off]
        for trap in self._traps:
            if trap.sha in seen and trap.mark in seen and trap.wants(self._pid):
                self._traps.remove(trap)
                return trap
        return None

    async def _hold(self, trap: Trap) -> None:
        if trap.off:
            return
        trap.caught = self._pid
        trap.spring(self._pid)
        trap.sprung.set()
        await trap.released.wait()


def _peer(writer: asyncio.StreamWriter) -> int:
    """The process at the other end, as the kernel knows it."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return pid
