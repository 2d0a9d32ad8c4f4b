"""The worker's end of the line to a supervisor: calls by id, replies in any order, everything bounded."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import wire
from zubble_sandbox.line import Line, LineLost

_ANSWER_BYTES: Final = 1_048_576
"""What an answer may hold beside its data: the result of a command is at most 256 KiB and a little."""
RECONNECT_SECONDS: Final = 30.0
"""How long a lost line is opened again and again before the sandbox counts as lost."""
_RETRY_SECONDS: Final = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)
"""Pauses before each try; the last one is repeated."""

Body = Sequence[wire.Buffer]


@dataclass(slots=True)
class _Call:
    kind: int
    fields: tuple[bytes, ...]
    body: Body | None
    limit: int
    answer: asyncio.Future[list[bytes]]
    data: bytearray = field(default_factory=bytearray)


class Channel:
    """One per sandbox. Must be made in a running event loop.

    A line that is lost is opened again, if there is a way to, and every call that waits is sent anew: all of
    them are safe to repeat. When it stays lost, every waiting and every later call raises SandboxUnavailable.

    Args:
        line: To the supervisor.
        reconnect: Opens another line, authenticated where that is needed. Raises LineLost to be called again,
            SandboxUnavailable when there is nothing to connect to any more. None: a lost line stays lost.
    """

    def __init__(self, line: Line, reconnect: Callable[[], Awaitable[Line]] | None = None) -> None:
        self._line, self._reconnect = line, reconnect
        self._calls: dict[int, _Call] = {}
        self._ids = itertools.count(1)
        self._sending = asyncio.Lock()
        self._again: set[asyncio.Task[None]] = set()
        self._broken: str | None = None
        """Why, in one sentence."""
        self._listening = asyncio.create_task(self._listen())

    async def call(
        self, kind: int, *fields: bytes, body: Body | None = None, limit: int = 0
    ) -> tuple[list[bytes], bytearray]:
        """The fields and the data of the answer.

        Args:
            kind: One of the requests of `wire`.
            fields: Its arguments.
            body: Sent behind it.
            limit: The most bytes of data the answer may bring; more means the supervisor is not ours.

        Raises:
            SandboxUnavailable: the line is broken or breaks.
            OSError, ValueError: what the supervisor met.
        """
        self.ensure_whole()
        call_id = next(self._ids) % 2**32
        call = _Call(kind, fields, body, limit, asyncio.get_running_loop().create_future())
        self._calls[call_id] = call
        try:
            sending = asyncio.ensure_future(self._send(self._line, call_id, call))
            await asyncio.shield(sending)  # half a message would be the end of the line
            return await call.answer, call.data
        finally:
            self._calls.pop(call_id, None)
            if not call.answer.cancel():
                _look_at(call.answer)

    def ensure_whole(self) -> None:
        """Raises SandboxUnavailable when the line is broken."""
        if self._broken is not None:
            raise SandboxUnavailable(self._broken)

    async def close(self) -> None:
        """Break the line; the supervisor ends when it notices."""
        self._fail("The sandbox was destroyed.")
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        await self._line.close()

    async def _send(self, line: Line, call_id: int, call: _Call) -> None:
        """Nothing to do when the line is lost: `_listen` notices too, and knows what to do about it."""
        async with self._sending:
            with contextlib.suppress(LineLost):
                await line.write(wire.frame(call.kind, call_id, wire.pack(*call.fields)))
                if call.body is not None:
                    for frame in wire.body_frames(call_id, call.body):
                        await line.write(frame)

    async def _listen(self) -> None:
        try:
            while True:
                await self._take_all()
                await self._line.close()
                self._line = await self._another_line()
                self._send_again()
        except SandboxUnavailable as error:
            self._fail(str(error))
        except (ValueError, IndexError) as error:
            self._fail(f"The sandbox broke its protocol: {error}.")
        await self._line.close()

    def _send_again(self) -> None:
        """In tasks of their own: a supervisor that answers reads on only while it is listened to."""
        for call_id, call in self._calls.items():
            call.data.clear()
            sending = asyncio.create_task(self._send(self._line, call_id, call))
            self._again.add(sending)
            sending.add_done_callback(self._again.discard)

    async def _take_all(self) -> None:
        """Until the line is lost."""
        line = self._line
        with contextlib.suppress(LineLost):
            while True:
                length, kind, call_id = wire.parse_header(await line.read_exactly(wire.HEADER_BYTES))
                self._take(kind, call_id, await line.read_exactly(length) if length else b"")

    async def _another_line(self) -> Line:
        if self._reconnect is None:
            raise SandboxUnavailable("The sandbox ended.")
        pauses = itertools.chain(_RETRY_SECONDS, itertools.repeat(_RETRY_SECONDS[-1]))
        why = "it took too long"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECONNECT_SECONDS):
                for pause in pauses:
                    await asyncio.sleep(pause)
                    try:
                        return await self._reconnect()
                    except LineLost as error:
                        why = str(error)
        raise SandboxUnavailable(f"The sandbox cannot be reached any more: {why}.")

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
    return ValueError(sentence)
