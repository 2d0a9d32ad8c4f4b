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

_KEPT_TOKENS: Final = WINDOW_TOKENS + GRAM_TOKENS - 1
_NOTHING: Final = "\0" * _KEPT_TOKENS
"""Stands before the first token, so that every place has a window behind it; no token has this code."""
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
    window: str = _NOTHING
    """The codes of the last 209 tokens: all 10-grams that end within the last 200."""
    recycled: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW_TOKENS))
    """Indices of recycled tokens, at least of those among the last 200."""

    def advance(self, codes: str) -> list[Counted]:
        """Take the next tokens, one code each; returns those that counted, in order."""
        known = self.window + codes
        first = self.tokens - _KEPT_TOKENS
        counted: list[Counted] = []
        at, end = _KEPT_TOKENS, len(known)
        while at < end:
            if not self.period:
                at, self.period = _next_recycled(known, at)
            if length := _equal(known, at, self.period):
                counted += self._note(first + at, length)
                at += length
            if at < end:
                self.period = 0
        self.window = known[-_KEPT_TOKENS:]
        self.tokens += len(codes)
        return counted

    def _note(self, token: int, length: int) -> list[Counted]:
        """Take up recycled tokens in a row; returns those that count.

        In a row the share of recycled tokens cannot fall: once saturated, the window is so to its end.
        """
        recycled, end = self.recycled, token + length
        if not self.count and len(recycled) + length < ON_TOKENS:
            recycled.extend(range(token, end))
            return []
        while recycled and recycled[0] < token - WINDOW_TOKENS:
            recycled.popleft()
        if len(recycled) < OFF_TOKENS:
            self.count = 0
        for place in range(token, end):
            while recycled and recycled[0] <= place - WINDOW_TOKENS:
                recycled.popleft()
            recycled.append(place)
            if len(recycled) >= ON_TOKENS:
                recycled.extend(range(place + 1, end))
                self.count += end - place
                return [Counted(place, end - place, self.period, self.count - (end - place))]
        return []

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


def _next_recycled(known: str, at: int) -> tuple[int, int]:
    """Place and period of the next recycled token; the end and 0 when there is none."""
    end = len(known)
    for group in range(at, end, _STRIDE):
        start = group - _PROBE_TOKENS + 1
        if known.rfind(known[start : group + 1], start - WINDOW_TOKENS, group) < 0:
            continue
        for start in range(group - GRAM_TOKENS + 1, min(group + _STRIDE, end) - GRAM_TOKENS + 1):
            stop = start + GRAM_TOKENS
            seen = known.rfind(known[start:stop], start - WINDOW_TOKENS, stop - 1)
            if seen >= 0:
                return stop - 1, start - seen
    return end, 0


def _equal(known: str, at: int, period: int) -> int:
    """How many tokens from a place on equal those a period before."""
    if known[at:] == known[at - period : len(known) - period]:
        return len(known) - at
    end = at
    while known[end] == known[end - period]:
        end += 1
    return end - at
