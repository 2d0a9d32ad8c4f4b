"""Counts saturated recycled tokens: the unit in which repetition is measured (C2).

A token is recycled when the 10-gram it ends was seen before, ending within the last 200 tokens. While at
least nine tenths of the last 200 tokens are recycled, every recycled one counts; once fewer than half are,
the count begins anew. On the texts this was chosen on, every real loop reaches 50 and no legitimate one 500.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

GRAM_TOKENS: Final = 10
WINDOW_TOKENS: Final = 200
ON_TOKENS: Final = 180
"""0.9 of the window."""
OFF_TOKENS: Final = 100
"""0.5 of the window."""

_BEFORE: Final = GRAM_TOKENS - 1
_KEPT_TOKENS: Final = WINDOW_TOKENS + _BEFORE
_PROBE_TOKENS: Final = 6
_STRIDE: Final = GRAM_TOKENS - _PROBE_TOKENS + 1
"""The 6-gram that ends at a token is part of every 10-gram that ends there or at one of the next four: if it
has not been seen, none of them has."""


class Counted(NamedTuple):
    """Recycled tokens in a row, in a saturated window."""

    token: int
    """Index of the first in the stream, from 0."""
    length: int
    period: int
    """Tokens back to the earlier occurrence that they follow."""
    before: int
    """The count before the first of them; 0 when it begins anew."""


@dataclass(slots=True)
class Saturation:
    """One stream's counter."""

    tokens: int = 0
    """How many have been seen."""
    count: int = 0
    period: int = 0
    """Of the last token; 0 when it was not recycled."""
    window: str = ""
    """The codes of the last 209 tokens: all 10-grams that end within the last 200."""
    recycled: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW_TOKENS))
    """Indices of recycled tokens, at least of those among the last 200."""

    def advance(self, codes: str) -> list[Counted]:
        """Take the next tokens, one code each; returns those that counted, in order."""
        known = self.window + codes
        first = self.tokens - len(self.window)
        counted: list[Counted] = []
        at, end = max(len(self.window), _BEFORE), len(known)
        while at < end:
            if not self.period:
                at = self._next_recycled(known, at)
            length = _equal(known, at, self.period)
            if run := self._note(first + at, length):
                counted.append(run)
            at += length
            if at < end:
                self.period = 0
        self.window = known[-_KEPT_TOKENS:]
        self.tokens += len(codes)
        return counted

    def _next_recycled(self, known: str, at: int) -> int:
        """The place of the next recycled token, whose period is set; or the end."""
        end = len(known)
        for group in range(at, end, _STRIDE):
            if not _period(known, group, _PROBE_TOKENS):
                continue
            for place in range(group, min(group + _STRIDE, end)):
                if period := _period(known, place, GRAM_TOKENS):
                    self.period = period
                    return place
        return end

    def _note(self, token: int, length: int) -> Counted | None:
        """Take up recycled tokens in a row; once the window is saturated, it is so to the end of the row."""
        for place in range(token, token + length):
            if self._saturated(place):
                rest = token + length - place
                self.recycled.extend(range(place + 1, place + rest))
                self.count += rest
                return Counted(place, rest, self.period, self.count - rest)
        return None

    def _saturated(self, token: int) -> bool:
        """Note a recycled token. Between two of them the share only falls, so looking at each is enough."""
        recycled, left = self.recycled, token - WINDOW_TOKENS
        while recycled and recycled[0] < left:
            recycled.popleft()
        if len(recycled) < OFF_TOKENS:
            self.count = 0
        if recycled and recycled[0] == left:
            recycled.popleft()
        recycled.append(token)
        return len(recycled) >= ON_TOKENS

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "tokens": self.tokens,
            "count": self.count,
            "period": self.period,
            "window": self.window,
            "recycled": list(self.recycled),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(**{**state, "recycled": deque(state["recycled"], WINDOW_TOKENS)})


def _period(known: str, place: int, length: int) -> int:
    """How far back the tokens that end at a place were last seen, at most 200; 0 where they were not."""
    start = place - length + 1
    seen = known.rfind(known[start : place + 1], max(start - WINDOW_TOKENS, 0), place)
    return start - seen if seen >= 0 else 0


def _equal(known: str, at: int, period: int) -> int:
    """How many tokens from a place on equal those a period before."""
    if known[at:] == known[at - period : len(known) - period]:
        return len(known) - at
    end = at
    while known[end] == known[end - period]:
        end += 1
    return end - at
