"""A small HTTP/1.1 server for the mock endpoint; it streams, and it notices a client that leaves.

It is a test tool for the loopback interface, bounded but not hardened; it must not face a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

_MAX_HEAD: Final = 65_536
_MAX_BODY: Final = 64 * 1_048_576
_SEND_BUFFER: Final = 65_536
"""Bytes the kernel holds for one client: little, so that what counts as sent was nearly read. With less, one
large write crawls along at the pace of delayed acknowledgements."""
_HIGH_WATER: Final = 16_384
"""Bytes we hold for one client before its handler waits."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close send a reset."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    """Lower-case names."""
    body: bytes


class ClientGone(Exception):
    """The client left in the middle of an answer."""


class BadRequest(Exception):
    """The bytes are no request this server reads."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(HTTPStatus(status).phrase)


Handler = Callable[[Request, "Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    """One answer in the making.

    When the client leaves, the handler is cancelled, or hears ClientGone where it writes.
    """

    _connection: _Connection

    async def send(
        self, status: int, body: bytes, *, content_type: str, headers: dict[str, str] | None = None
    ) -> None:
        """The whole answer at once."""
        more = {"content-type": content_type, "content-length": str(len(body))} | (headers or {})
        await self._connection.write(_head(status, more) + body)

    async def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        await self.send(status, body, content_type="application/json", headers=headers)

    async def start(self, content_type: str) -> None:
        """Begin an answer whose end is not known."""
        await self._connection.write(
            _head(200, {"content-type": content_type, "transfer-encoding": "chunked"})
        )

    async def write(self, data: bytes) -> None:
        """Send a piece; waits while the client does not read."""
        await self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def finish(self) -> None:
        await self._connection.write(b"0\r\n\r\n")

    async def close(self) -> None:
        """Close without an end of the answer, after what was written has left."""
        await self._connection.close()

    def reset(self) -> None:
        """Drop the connection with a reset."""
        self._connection.reset()


@dataclass
class HttpServer:
    """Serves a handler until it is stopped."""

    handler: Handler
    host: str = "127.0.0.1"
    port: int = 0
    """The port that was bound, once started."""
    connections: set[_Connection] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError when the address is not to be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, backlog=1_024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection, and wait until the handlers have ended."""
        if self._server is None:
            return
        self._server.close()
        tasks = [connection.task for connection in self.connections if connection.task]
        for connection in tuple(self.connections):
            connection.reset()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None


class _Connection(asyncio.Protocol):
    """One client; its requests are answered one after the other."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._writable = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writable.set()
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio names it
        self._server.connections.discard(self)
        self._transport = None
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._answer_next()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ClientGone
        self._transport.write(data)
        await self._writable.wait()

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is None:
            return
        with contextlib.suppress(OSError):
            linger = self._transport.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def _answer_next(self) -> None:
        if self.task is not None or not self._received:
            return
        try:
            request = _take_request(self._received)
        except BadRequest as problem:
            self._refuse(problem.status)
            return
        if request is not None:
            self.task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            await self._server.handler(request, Exchange(self))
        except ClientGone:
            return
        finally:
            self.task = None
        if request.headers.get("connection", "").lower() == "close":
            await self.close()
        elif self._transport is not None:
            self._answer_next()

    def _refuse(self, status: int) -> None:
        if self._transport is not None:
            self._transport.write(_head(status, {"content-length": "0", "connection": "close"}))
            self._transport.close()


def _head(status: int, headers: dict[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _take_request(received: bytearray) -> Request | None:
    """Remove one whole request from the front; None while some of it is missing."""
    end = received.find(_END_OF_HEAD)
    if end < 0:
        if len(received) > _MAX_HEAD:
            raise BadRequest(431)
        return None
    method, path, headers = _parse_head(bytes(received[:end]))
    start = end + len(_END_OF_HEAD)
    length = _body_length(headers)
    if len(received) < start + length:
        return None
    body = bytes(received[start : start + length])
    del received[: start + length]
    return Request(method, path.partition("?")[0], headers, body)


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(400)
    pairs = (line.partition(":") for line in rest)
    return words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _body_length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(411)
    text = headers.get("content-length", "0")
    if not text.isdecimal():
        raise BadRequest(400)
    if int(text) > _MAX_BODY:
        raise BadRequest(413)
    return int(text)
