"""A scripted reply as a sequence of tokens, cut by stop sequences and max_tokens as an endpoint would.

A token is an optional space and up to twelve letters, digits or underscores, or one other visible character
(with an optional space before it), or one newline, or a run of other blanks. It is a rule that can be checked
by hand, near to what byte-pair vocabularies give for English and code.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from zubble_worker.models.scripted_reply import spell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from zubble_queue.contracts.model import Channel
    from zubble_worker.models.script import Prompt
    from zubble_worker.models.scripted_reply import ScriptedReply

_TOKEN: Final = re.compile(r" ?\w{1,12}| ?[^\w\s]|\n|[^\S\n]+")
_TOKENS_PER_MESSAGE: Final = 4
_LARGEST_BATCH: Final = 16
_QUANTUM_SECONDS: Final = 0.005
"""Pieces due within this time go out together."""


class Piece(NamedTuple):
    """One or more tokens of one channel."""

    channel: Channel
    text: str
    tokens: int
    tool: int = 0
    """Which tool call, counted from 0."""
    opens_tool: bool = False
    """`text` is the tool's name; its arguments follow."""


@dataclass(frozen=True, slots=True)
class Performance:
    """What is delivered when nothing goes wrong."""

    pieces: tuple[Piece, ...]
    finish: str

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def reasoning_tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces if piece.channel == "reasoning")

    def split(self, after_tokens: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        """The pieces that start before so many tokens, and the rest."""
        sent = 0
        for position, piece in enumerate(self.pieces):
            if sent >= after_tokens:
                return self.pieces[:position], self.pieces[position:]
            sent += piece.tokens
        return self.pieces, ()


@dataclass(frozen=True, slots=True)
class Playback:
    """Pieces in batches, at their pace: iterating waits until the next batch is due."""

    pieces: Sequence[Piece]
    token_seconds: float
    """0 does not wait."""
    burst: int = 0
    """Tokens that go out at once, before the pace begins."""

    async def __aiter__(self) -> AsyncIterator[Sequence[Piece]]:
        position, sent, started = 0, 0, time.monotonic()
        while position < len(self.pieces):
            soon = time.monotonic() - started + _QUANTUM_SECONDS
            end = position
            last = min(position + _LARGEST_BATCH, len(self.pieces))
            while end < last and (end == position or self._due(sent) < soon):
                sent += self.pieces[end].tokens
                end += 1
            await asyncio.sleep(max(started + self._due(sent) - time.monotonic(), 0.0))
            yield self.pieces[position:end]
            position = end

    def _due(self, sent: int) -> float:
        """Seconds after the start at which so many tokens may have been sent."""
        return max(sent - self.burst, 0) * self.token_seconds


def tokens(text: str) -> list[str]:
    """The text in tokens; joined they are the text again."""
    return _TOKEN.findall(text)


def count_tokens(text: str) -> int:
    return sum(1 for _ in _TOKEN.finditer(text))


def count_prompt_tokens(prompt: Prompt) -> int:
    """All messages, and four tokens of framing for each."""
    return sum(count_tokens(content) + _TOKENS_PER_MESSAGE for _, content in prompt.messages)


def perform(reply: ScriptedReply, *, max_tokens: int | None, stop: Sequence[str]) -> Performance:
    """Spell the reply out, token by token."""
    text, stopped = _until_stop(spell(reply.text), stop)
    limit = None if max_tokens is None else max_tokens + 1
    singles = list(islice(_singles(reply, text, stopped=stopped), limit))
    natural = "tool_calls" if reply.tool_calls and not stopped else "stop"
    finish = reply.finish or natural
    if max_tokens is not None and len(singles) > max_tokens:
        singles, finish = singles[:max_tokens], "length"
    pieces = singles if reply.tokens_per_event == 1 else _grouped(singles, reply.tokens_per_event)
    return Performance(tuple(pieces), finish)


def _singles(reply: ScriptedReply, text: str, *, stopped: bool) -> Iterator[Piece]:
    for token in tokens(spell(reply.reasoning)):
        yield Piece("reasoning", token, 1)
    for token in tokens(text):
        yield Piece("text", token, 1)
    for index, call in enumerate(() if stopped else reply.tool_calls):
        yield Piece("tool", call.name, 1, index, opens_tool=True)
        for token in tokens(call.arguments or ""):
            yield Piece("tool", token, 1, index)


def _until_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    found = [at for sequence in stop if sequence and (at := text.find(sequence)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


def _grouped(singles: list[Piece], size: int) -> Iterator[Piece]:
    """At most `size` neighbours of the same kind in one piece."""
    start = 0
    while start < len(singles):
        first = singles[start]
        end = start + 1
        while end < min(start + size, len(singles)) and _same_kind(first, singles[end]):
            end += 1
        yield first._replace(text="".join(piece.text for piece in singles[start:end]), tokens=end - start)
        start = end


def _same_kind(first: Piece, other: Piece) -> bool:
    return (
        not first.opens_tool
        and not other.opens_tool
        and (first.channel, first.tool) == (other.channel, other.tool)
    )
