"""Connections that are made in a sandbox which no file is shared with, brought to a socket of this machine.

The other end is `zubble-box carry`; what it says is believed as little as anything from a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import wire
from zubble_sandbox.egress.flow import FLUSH_SECONDS
from zubble_sandbox.line import Line, LineLost

WINDOW_BYTES: Final = 65_536
"""On the way to either side of a connection, at most."""
PIECE_BYTES: Final = 16_384
CONNECTIONS: Final = 128
"""Twice those that `zubble-box carry` has open: it may be done with one before this end is."""
_ALIVE_SECONDS: Final = 15.0
"""The other end counts us as gone after a minute of silence."""
_PAUSES: Final = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Before each try to open a lost line again; the last one is repeated."""
_OPENING_SECONDS: Final = 20.0

Connect = Callable[[], Awaitable[Line]]
"""Opens a line to a carrier in the sandbox. Raises LineLost, or SandboxUnavailable when that is gone."""
_Say = Callable[[int, int, bytes], Awaitable[None]]


class Carrier:
    """The worker's end, from the first line until it is closed.

    A line that is lost breaks the connections it carried; another is opened as long as there is a sandbox.
    """

    def __init__(self, line: Line, connect: Connect, socket: Path) -> None:
        self._connect, self._socket = connect, socket
        self._carrying = asyncio.create_task(self._carry(line))

    @classmethod
    async def open(cls, connect: Connect, socket: Path) -> Self:
        """Listening inside when it returns.

        Args:
            connect: Opens each line.
            socket: Where connections are brought.

        Raises:
            SandboxUnavailable: The other end does not listen.
        """
        why = ""
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                return cls(await _listening(connect), connect, socket)
            except LineLost as error:
                why = str(error)
        raise SandboxUnavailable(f"Nothing can be carried out of the sandbox: {why}.")

    async def close(self) -> None:
        """Break every connection; as often as one likes."""
        self._carrying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._carrying

    async def _carry(self, line: Line) -> None:
        while True:
            try:
                await _Ride(line, self._socket).last()
            finally:
                await line.close()
            again = await self._another_line()
            if again is None:
                return
            line = again

    async def _another_line(self) -> Line | None:
        tries = 0
        while True:
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
            try:
                return await _listening(self._connect)
            except LineLost:
                continue
            except SandboxUnavailable:
                return None


async def _listening(connect: Connect) -> Line:
    """A line whose other end has said that it listens. Raises what `connect` does."""
    line = await connect()
    try:
        async with asyncio.timeout(_OPENING_SECONDS):
            first = await _frame(line)
    except BaseException as error:
        await line.close()
        if isinstance(error, TimeoutError):
            raise LineLost("it says nothing") from error
        raise
    if first[:2] != (wire.OPENED, 0):
        await line.close()
        raise LineLost("it does not listen")
    return line


async def _frame(line: Line) -> tuple[int, int, bytes]:
    """Kind, connection, payload. Raises LineLost, also for what no carrier of ours sends."""
    try:
        length, kind, name = wire.parse_header(await line.read_exactly(wire.HEADER_BYTES))
    except ValueError as error:
        raise LineLost(str(error)) from error
    if length > PIECE_BYTES:
        raise LineLost(f"a piece of {length} bytes")
    return kind, name, await line.read_exactly(length) if length else b""


class _Ride:
    """What one line carries."""

    def __init__(self, line: Line, socket: Path) -> None:
        self._line, self._socket = line, socket
        self._saying = asyncio.Lock()
        self._connections: dict[int, tuple[_Connection, asyncio.Task[None]]] = {}

    async def last(self) -> None:
        """Until the line is lost."""
        async with asyncio.TaskGroup() as group:
            alive = group.create_task(self._say_on())
            try:
                while True:
                    self._take(*await _frame(self._line), group)
            except LineLost:
                alive.cancel()
                for _, task in self._connections.values():
                    task.cancel()

    def _take(self, kind: int, name: int, payload: bytes, group: asyncio.TaskGroup) -> None:
        if kind == wire.OPENED:
            if name in self._connections or len(self._connections) >= CONNECTIONS:
                raise LineLost("more connections than there can be")
            connection = _Connection(name, self._say, self._socket)
            task = group.create_task(connection.last())
            task.add_done_callback(lambda _: self._connections.pop(name, None))
            self._connections[name] = connection, task
        elif name in self._connections:
            connection, task = self._connections[name]
            if kind == wire.CHUNK and payload:
                connection.hear(payload)
            elif kind == wire.END:
                connection.hear(b"")
            elif kind == wire.ROOM:
                connection.allow(int.from_bytes(payload, "big"))
            elif kind == wire.GONE:
                task.cancel()

    async def _say_on(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_SECONDS)
            await self._say(wire.ROOM, 0, bytes(4))

    async def _say(self, kind: int, name: int, payload: bytes) -> None:
        """A whole frame, whoever is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self._write(wire.frame(kind, name, payload))))

    async def _write(self, frame: bytes) -> None:
        """One after the other; a lost line is met by who reads from it."""
        async with self._saying:
            with contextlib.suppress(LineLost):
                await self._line.write(frame)


class _Connection:
    """One, between its frames and the socket."""

    def __init__(self, name: int, say: _Say, socket: Path) -> None:
        self._name, self._say, self._socket = name, say, socket
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        """Bytes in there."""
        self._credit = WINDOW_BYTES
        self._allowed = asyncio.Event()

    def hear(self, data: bytes) -> None:
        """What the client says; nothing at its end."""
        self._waiting += len(data)
        if self._waiting > WINDOW_BYTES:
            raise LineLost("more than there is room for")
        self._heard.put_nowait(data)

    def allow(self, size: int) -> None:
        """The client has taken so many bytes."""
        self._credit = min(self._credit + size, WINDOW_BYTES)
        self._allowed.set()

    async def last(self) -> None:
        """Until both sides have ended, or one is broken."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=WINDOW_BYTES)
        except OSError:
            await self._say(wire.GONE, self._name, b"")
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._outward(writer))
                both.create_task(self._inward(reader))
            writer.close()
            async with asyncio.timeout(FLUSH_SECONDS):
                await writer.wait_closed()
        except* OSError:
            await self._say(wire.GONE, self._name, b"")
        finally:
            writer.transport.abort()

    async def _outward(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=WINDOW_BYTES)
        while data := await self._heard.get():
            writer.write(data)
            await writer.drain()
            self._waiting -= len(data)
            await self._say(wire.ROOM, self._name, len(data).to_bytes(4, "big"))
        writer.write_eof()

    async def _inward(self, reader: asyncio.StreamReader) -> None:
        while True:
            while not self._credit:
                self._allowed.clear()
                await self._allowed.wait()
            data = await reader.read(min(self._credit, PIECE_BYTES))
            if not data:
                break
            self._credit -= len(data)
            await self._say(wire.CHUNK, self._name, data)
        await self._say(wire.END, self._name, b"")
