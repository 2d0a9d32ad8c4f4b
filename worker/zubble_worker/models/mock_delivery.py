"""One answer of the mock endpoint on its way: its pace, its fault, and the count of what was sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from zubble_worker.models import wire
from zubble_worker.models.performance import Piece, Playback
from zubble_worker.models.scripted_reply import INVALID_UTF8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_worker.models.mock_http import Exchange
    from zubble_worker.models.performance import Performance
    from zubble_worker.models.scripted_reply import Fault, ScriptedReply

_HTML: Final = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works!</body></html>"
_MALFORMED: Final = b'data: {"choices": [{"index": 0, "delta": {"content": "ha\n\n'
_FASTEST_TOKEN_SECONDS: Final = 0.00005
"""Of one stream. Without it thousands of tokens are on their way before a client that hangs up is noticed."""
_BURST: Final = 512
"""Tokens that go out at once where nothing paces the reply."""
_FOREVER_SECONDS: Final = 86_400.0


@dataclass
class Call:
    """One request for a completion, as the endpoint saw it."""

    time: float
    """Seconds since the epoch."""
    model: str
    call_id: str = ""
    """The client's X-Client-Request-Id."""
    marker: str = ""
    """What the script's `marker` pattern found."""
    rule: str = ""
    turn: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Handed to the connection so far."""
    finish: str = ""
    """finish_reason, or the fault's kind; empty while the call is open or where the client left."""
    status: int = 200
    aborted: bool = False
    """The client left before the end."""
    done: bool = False
    authorization: bool = False
    """Whether a key came with the request; never the key itself."""
    stream: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seconds: float = 0.0
    request: dict[str, Any] | None = field(default=None, repr=False)
    """The request's body where the endpoint keeps them."""


async def refuse(fault: Fault, call: Call, exchange: Exchange) -> None:
    """Answer with what is no completion."""
    call.finish = fault.kind
    if fault.kind == "html":
        await exchange.send(200, _HTML, content_type="text/html; charset=utf-8")
        return
    call.status = fault.status
    headers = {"retry-after": fault.retry_after} if fault.retry_after is not None else {}
    await exchange.send_json(fault.status, wire.error(fault.message, fault.status), headers)


@dataclass
class Delivery:
    """A reply that is sent, whole or streamed."""

    call: Call
    exchange: Exchange
    reply: ScriptedReply
    played: Performance
    fault: Fault | None

    async def whole(self) -> None:
        """In one JSON answer. A fault that breaks streams breaks the connection."""
        await asyncio.sleep(self.reply.delay_seconds + self.played.tokens * self.reply.token_seconds)
        if self.fault is not None:
            await self.exchange.start("application/json")
            await self._fail(self.fault, wire.Chunks(self.call.model))
            return
        self.call.completion_tokens = self.played.tokens
        counted = self._usage() if self.reply.usage else None
        await self.exchange.send_json(200, wire.whole_answer(self.call.model, self.played, counted))
        self.call.finish = self.played.finish

    async def stream(self, *, include_usage: bool) -> None:
        """As server-sent events."""
        chunks = wire.Chunks(self.call.model)
        await self.exchange.start("text/event-stream")
        await asyncio.sleep(self.reply.delay_seconds)
        head, rest = self.played.split(self.fault.after_tokens) if self.fault else (self.played.pieces, ())
        await self._send(head, chunks)
        if self.fault is not None and await self._fail(self.fault, chunks):
            return
        await self._send(rest, chunks)
        tail = chunks.finish(self.played.finish)
        if include_usage and self.reply.usage:
            tail += chunks.usage(self._usage())
        await self.exchange.write(tail + wire.DONE)
        await self.exchange.finish()
        self.call.finish = self.call.finish or self.played.finish

    async def _send(self, pieces: Sequence[Piece], chunks: wire.Chunks) -> None:
        pace = self.reply.token_seconds or _FASTEST_TOKEN_SECONDS
        async for batch in Playback(pieces, pace, burst=0 if self.reply.token_seconds else _BURST):
            self.call.completion_tokens += sum(piece.tokens for piece in batch)
            await self.exchange.write(b"".join(map(chunks.piece, batch)))

    async def _fail(self, fault: Fault, chunks: wire.Chunks) -> bool:
        """Let the fault happen; True when the answer ends with it."""
        self.call.finish = fault.kind
        match fault.kind:
            case "stall":
                await asyncio.sleep(_FOREVER_SECONDS)
            case "reset":
                self.exchange.reset()
            case "eof":
                await self.exchange.close()
            case "error_event":
                await self.exchange.write(wire.event(wire.error(fault.message, fault.status)))
                await self.exchange.finish()
            case "malformed":
                await self.exchange.write(_MALFORMED)
                return False
            case "invalid_utf8":
                await self.exchange.write(chunks.raw_text(INVALID_UTF8))
                return False
            case "big_chunk":
                # Not counted: no endpoint that keeps max_tokens can bill it.
                await self.exchange.write(chunks.piece(Piece("text", fault.big_text, 0)))
                return False
        return True

    def _usage(self) -> dict[str, Any]:
        return wire.usage(
            self.call.prompt_tokens,
            self.call.completion_tokens,
            cached=self.reply.cached_tokens,
            reasoning=self.played.reasoning_tokens,
        )
