"""The worker's end of the line to a supervisor: calls by id, replies in any order, everything bounded."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.supervisor import wire

_ANSWER_BYTES: Final = 1_048_576
"""What an answer may hold beside its data: the result of a command is at most 256 KiB and a little."""


@dataclass(slots=True)
class _Call:
    answer: asyncio.Future[list[bytes]]
    limit: int
    data: bytearray = field(default_factory=bytearray)


class Channel:
    """One per sandbox. When the line breaks, every waiting and every later call raises SandboxUnavailable."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._sending = asyncio.Lock()
        self._broken: str | None = None
        """Why, in one sentence."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def over(cls, sock: socket.socket) -> Self:
        """Take over a connected socket."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    @property
    def broken(self) -> bool:
        return self._broken is not None

    async def call(
        self, kind: int, *fields: bytes, body: bytes | None = None, limit: int = 0
    ) -> tuple[list[bytes], bytes]:
        """The fields and the data of the answer.

        Args:
            kind: One of the requests of `wire`.
            fields: Its arguments.
            body: Sent behind it in chunks.
            limit: The most bytes of data the answer may bring; more means the supervisor is not ours.

        Raises:
            SandboxUnavailable: the line is broken or breaks.
            OSError, ValueError: what the supervisor met.
        """
        if self._broken is not None:
            raise SandboxUnavailable(self._broken)
        call_id = next(self._ids) % 2**32
        call = _Call(asyncio.get_running_loop().create_future(), limit)
        self._calls[call_id] = call
        try:
            sending = asyncio.ensure_future(self._send(kind, call_id, wire.pack(*fields), body))
            sending.add_done_callback(_look_at)
            await asyncio.shield(sending)  # half a message would be the end of the line
            return await call.answer, bytes(call.data)
        finally:
            self._calls.pop(call_id, None)
            if not call.answer.cancel():
                _look_at(call.answer)

    def tell(self, kind: int) -> None:
        """Send a small request whose answer nobody waits for."""
        if self._broken is None:
            self._writer.write(wire.frame(kind, next(self._ids) % 2**32))

    async def close(self) -> None:
        """Break the line; the supervisor ends when it notices."""
        self._fail("The sandbox was destroyed.")
        self._listening.cancel()
        self._writer.close()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._listening
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _send(self, kind: int, call_id: int, payload: bytes, body: bytes | None) -> None:
        async with self._sending:
            try:
                await self._write(wire.frame(kind, call_id, payload))
                if body is None:
                    return
                for start in range(0, len(body), wire.CHUNK_BYTES):
                    await self._write(wire.frame(wire.CHUNK, call_id, body[start : start + wire.CHUNK_BYTES]))
                await self._write(wire.frame(wire.END, call_id))
            except OSError as error:
                self._fail(f"The sandbox is gone: {error}.")
                raise SandboxUnavailable(self._broken) from error

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _listen(self) -> None:
        try:
            while True:
                length, kind, call_id = wire.parse_header(await self._reader.readexactly(wire.HEADER_BYTES))
                self._take(kind, call_id, await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            self._fail("The sandbox ended.")
        except (ValueError, IndexError) as error:
            self._fail(f"The sandbox broke its protocol: {error}.")
            self._writer.close()

    def _take(self, kind: int, call_id: int, payload: bytes) -> None:
        call = self._calls.get(call_id)
        if call is None or call.answer.done():
            return
        if kind == wire.CHUNK:
            call.data += payload
            if len(call.data) > call.limit:
                raise ValueError(f"an answer brought more than {call.limit} bytes")
        elif kind == wire.OK and len(payload) <= _ANSWER_BYTES:
            call.answer.set_result(wire.unpack(payload))
        elif kind == wire.FAILED:
            call.answer.set_exception(_error(wire.unpack(payload)))
        else:
            raise ValueError(f"unexpected frame {kind} of {len(payload)} bytes")

    def _fail(self, why: str) -> None:
        self._broken = self._broken or why
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(SandboxUnavailable(self._broken))


def _look_at(future: asyncio.Future[Any]) -> None:
    """So that the loop does not report an error that somebody else has heard of."""
    if not future.cancelled():
        future.exception()


def _error(fields: Sequence[bytes]) -> Exception:
    kind, number, sentence = fields[0], int(fields[1]), fields[2].decode(errors="replace")
    if kind == b"os":
        return OSError(number, sentence or os.strerror(number))
    if kind == b"value":
        return ValueError(sentence)
    return SandboxUnavailable(f"The supervisor failed: {sentence}.")
