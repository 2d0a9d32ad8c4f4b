"""Sees a short piece said again and again at once: the strict profile's signal (Z15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zubble_worker.observers.tokens import all_separators

PERIODS: Final = range(1, 9)
"""Tokens of a piece: six pieces of eight fill the window of 50."""


class Found(NamedTuple):
    """Where a burst was seen."""

    offset: int
    """In the tokens just taken."""
    period: int


@dataclass(slots=True)
class Burst:
    """One stream's runs of equal pieces. Pieces without a word (dividers, blank lines) are no burst."""

    repeats: int
    """Fires when a piece is followed by so many copies of itself."""
    last: str = ""
    """The codes of the last eight tokens."""
    runs: list[int] = field(default_factory=lambda: [0] * (PERIODS.stop))
    """By period: how many tokens in a row equal the one a period before."""

    def advance(self, codes: str) -> Found | None:
        """Take the next tokens; returns the first burst among them."""
        known, before, runs = self.last + codes, len(self.last), self.runs
        first: Found | None = None
        for place in range(before, len(known)):
            for period in PERIODS:
                if place < period or known[place] != known[place - period]:
                    runs[period] = 0
                    continue
                runs[period] += 1
                if runs[period] != self.repeats * period or first is not None:
                    continue
                if not all_separators(known[place - period + 1 : place + 1]):
                    first = Found(place - before, period)
        self.last = known[1 - PERIODS.stop :]
        return first
