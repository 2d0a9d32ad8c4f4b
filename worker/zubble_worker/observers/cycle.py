"""Sees a long text that comes again word for word: the look-back of 4,096 tokens (section 3.4).

What repeats within 190 tokens is counted by saturation. Farther back, real work repeats too (a function that
is quoted, a record like the one before), so a repetition counts here only while it follows few distinct
periods, and it must have come a third time, word for word, before anything is said about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from zubble_worker.observers.saturation import GRAM_TOKENS as NEAR_GRAM_TOKENS
from zubble_worker.observers.saturation import WINDOW_TOKENS

LOOK_BACK_TOKENS: Final = 4_096
SHORTEST_PERIOD: Final = WINDOW_TOKENS - NEAR_GRAM_TOKENS
"""Up to here a loop saturates the window of 200 tokens."""
MOST_PERIODS: Final = 5
"""A sixth distinct period begins the count anew: variety is no loop."""
GAP_TOKENS: Final = 40
"""More tokens than these that follow no period begin the count anew; one that differs costs about 25."""
MORE_COPIES: Final = 2
"""Beside the first: so much must have been said again, word for word, before a rung is reached."""
MORE_COPIES_TO_CUT: Final = 3

GRAM_TOKENS: Final = 20
"""So many in a row must have come before: shorter ones are everywhere in tables and code."""
_KEPT_TOKENS: Final = LOOK_BACK_TOKENS + GRAM_TOKENS
_BYTES: Final = 4
"""Of a code: sequences are kept as UTF-32, so that tokens can be added without a copy of all."""
_GRAM_BYTES: Final = _BYTES * GRAM_TOKENS
_ENCODING: Final = "utf-32-le"
_ANCHORS: Final = re.compile(b"[" + re.escape(bytes(range(0, 256, 4))) + b"]")
"""Lowest bytes of codes of which 20-grams that end with them are remembered and looked for: one in four."""


class Cycled(NamedTuple):
    """Tokens in a row that follow one long period."""

    token: int
    """Index of the first in the stream, from 0."""
    length: int
    period: int
    covered: int
    """How many followed one of the few periods before the first of these."""
    run: int
    """How many immediately before it followed this period: word for word the same text."""


@dataclass(slots=True)
class Cycle:
    """One stream's look-back."""

    tokens: int = 0
    """How many have been seen."""
    period: int = 0
    """That the last token follows, long or short; 0 for none."""
    run: int = 0
    covered: int = 0
    periods: list[int] = field(default_factory=list)
    ended: int = 0
    """Index after the last token that counted."""
    window: bytearray = field(default_factory=bytearray)
    """The codes of the last 4,116 tokens, and of up to as many before them."""
    places: dict[bytes, int] = field(default_factory=dict)
    """Where remembered 20-grams ended last."""

    def advance(self, codes: str) -> list[Cycled]:
        """Take the next tokens, one code each; returns those that counted, in order."""
        self._forget()
        self.window += codes.encode(_ENCODING)
        at, end = self.tokens, self.tokens + len(codes)
        self.tokens = end
        found: list[Cycled] = []
        while at < end:
            if not self.period:
                at = self._look(at)
            if self.period:
                length = self._equal(at)
                if length and self.period > SHORTEST_PERIOD:
                    found.append(self._note(at, length))
                self._remember(at, at + length)
                at += length
                if at < end:
                    self.period = self.run = 0
        return found

    def _forget(self) -> None:
        """Now and then: all that lies too far back."""
        kept = _BYTES * _KEPT_TOKENS
        if len(self.window) > 2 * kept:
            del self.window[:-kept]
            oldest = self.tokens - LOOK_BACK_TOKENS
            self.places = {gram: place for gram, place in self.places.items() if place >= oldest}

    def _offset(self, token: int) -> int:
        """Where a token's code begins in the window."""
        return len(self.window) - _BYTES * (self.tokens - token)

    def _look(self, at: int) -> int:
        """The next token that ends a remembered 20-gram; sets the period when there is one."""
        at = max(at, GRAM_TOKENS - 1)
        places, near = self.places, bytes(self.window[self._offset(at - GRAM_TOKENS + 1) :])
        for anchor in _ANCHORS.finditer(near[_GRAM_BYTES - _BYTES :: _BYTES]):
            token, start = at + anchor.start(), _BYTES * anchor.start()
            gram = near[start : start + _GRAM_BYTES]
            seen = places.get(gram)
            if seen is not None and token - seen <= LOOK_BACK_TOKENS:
                self.period = self._shortest(gram, token) or token - seen
                return token
            places[gram] = token
        return self.tokens

    def _shortest(self, gram: bytes, token: int) -> int:
        """A period that is none of ours, where one is as good: the nearer occurrence was not remembered."""
        start = self._offset(token - GRAM_TOKENS + 1)
        lowest = max(start - _BYTES * SHORTEST_PERIOD, 0)
        near = self.window.rfind(gram, lowest, start + _GRAM_BYTES - 1)
        return (start - near) // _BYTES if near >= 0 and (start - near) % _BYTES == 0 else 0

    def _equal(self, at: int) -> int:
        """How many tokens from a place on equal those a period before."""
        window, now = self.window, self._offset(at)
        before = now - _BYTES * self.period
        if window[now:] == window[before : len(window) - _BYTES * self.period]:
            return self.tokens - at
        end = now
        while window[end : end + _BYTES] == window[end - now + before : end - now + before + _BYTES]:
            end += _BYTES
        return (end - now) // _BYTES

    def _remember(self, at: int, end: int) -> None:
        near = bytes(self.window[self._offset(at - GRAM_TOKENS + 1) : self._offset(end)])
        for anchor in _ANCHORS.finditer(near[_GRAM_BYTES - _BYTES :: _BYTES]):
            start = _BYTES * anchor.start()
            self.places[near[start : start + _GRAM_BYTES]] = at + anchor.start()

    def _note(self, token: int, length: int) -> Cycled:
        if token - self.ended > GAP_TOKENS:
            self.covered, self.periods = 0, []
        if self.period not in self.periods:
            if len(self.periods) == MOST_PERIODS:
                self.covered, self.periods = 0, []
            self.periods.append(self.period)
        noted = Cycled(token, length, self.period, self.covered, self.run)
        self.covered += length
        self.run += length
        self.ended = token + length
        return noted

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        names = ("tokens", "period", "run", "covered", "periods", "ended")
        return {
            **{name: getattr(self, name) for name in names},
            "window": self.window.decode(_ENCODING),
            "places": {gram.decode(_ENCODING): place for gram, place in self.places.items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(
            **{
                **state,
                "window": bytearray(state["window"].encode(_ENCODING)),
                "places": {gram.encode(_ENCODING): place for gram, place in state["places"].items()},
            }
        )
