"""Sees a loop that counts: the same text, with numbers that go on by equal steps (section 3.4).

With every number made equal, such a loop is saturated like any other; so are tables, logs and verses.
Therefore all numbers of the last 1,200 tokens must go on by their own equal steps, the count must reach the
ladder's top, and even then nothing is cut: a fresh call decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from zubble_worker.observers.saturation import WINDOW_TOKENS, Saturation
from zubble_worker.observers.tokens import NUMBER_CODES, NUMBER_VALUES

BLOCK_TOKENS: Final = 256
"""The steps are looked at once in so many tokens; blocks without any number end a count."""

_NUMBERS: Final = re.compile(f"[{chr(NUMBER_CODES.start)}-{chr(NUMBER_CODES.stop - 1)}]")
_ANY_NUMBER: Final = chr(NUMBER_CODES.start)
_KEPT_TOKENS: Final = 6 * WINDOW_TOKENS


class Counting(NamedTuple):
    """A place where a loop was seen to count."""

    offset: int
    """In the tokens just taken: the end of a block."""
    period: int


@dataclass(slots=True)
class Counter:
    """One stream's count of tokens with all numbers equal."""

    saturation: Saturation = field(default_factory=Saturation)
    seen: bool = False
    """Whether this loop has been reported."""
    recent: str = ""
    """The codes of the last 1,200 tokens, numbers as they are."""
    block: str = ""
    """What has come of the next block."""

    def advance(self, codes: str, threshold: int) -> Counting | None:
        """Take the next tokens; returns where a loop of so many tokens was first seen to count."""
        before = len(self.block)
        self.block += codes
        found, end = None, 0
        while len(self.block) >= BLOCK_TOKENS:
            end += BLOCK_TOKENS
            if self._take(threshold):
                found = found or Counting(end - before - 1, self.saturation.period)
        return found

    def _take(self, threshold: int) -> bool:
        block, self.block = self.block[:BLOCK_TOKENS], self.block[BLOCK_TOKENS:]
        self.recent = (self.recent + block)[-_KEPT_TOKENS:]
        if not _NUMBERS.search(block):
            self.saturation, self.seen = Saturation(), False
            return False
        self.saturation.advance(_NUMBERS.sub(_ANY_NUMBER, block))
        if self.saturation.count < threshold or self.seen:
            self.seen = self.saturation.count >= threshold
            return False
        self.seen = counts_on(self.recent, self.saturation.period)
        return self.seen

    def state(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "seen": self.seen,
            "recent": self.recent,
            "block": self.block,
            "saturation": self.saturation.state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(**{**state, "saturation": Saturation.from_state(state["saturation"])})


def counts_on(codes: str, period: int) -> bool:
    """Whether each token differs from that of a period ago as that from its own, and one does."""
    if not period or len(codes) < 3 * period or codes[period:] == codes[:-period]:
        return False
    last = range(len(codes) - 1, 2 * period - 1, -1)
    return all(_goes_on(codes[at - 2 * period], codes[at - period], codes[at]) for at in last)


def _goes_on(first: str, second: str, third: str) -> bool:
    if first == second == third:
        return True
    one, two, three = ord(first), ord(second), ord(third)
    same_name = one // NUMBER_VALUES == two // NUMBER_VALUES == three // NUMBER_VALUES
    return one in NUMBER_CODES and same_name and (three - two - two + one) % NUMBER_VALUES == 0
