"""The ladder of measures: nudge twice, refuse where a refusal can help, then a fresh context."""

from __future__ import annotations

from typing import Final

from zubble_worker.observers.actions.facts import Measure

NUDGES_THEN_RESET: Final[tuple[Measure, ...]] = ("nudge", "nudge", "reset")
NUDGE_REFUSE_RESET: Final[tuple[Measure, ...]] = ("nudge", "refuse", "reset")
NUDGES: Final[tuple[Measure, ...]] = ("nudge", "nudge")


def measure(count: int, first: int, every: int, ladder: tuple[Measure, ...]) -> Measure | None:
    """What is due at exactly this count: the ladder's rungs in turn, a reset again and again at its end.

    None between rungs, and past the end of a ladder that does not end in a reset.
    """
    if count < first or (count - first) % every:
        return None
    rung = (count - first) // every
    if rung < len(ladder):
        return ladder[rung]
    return "reset" if ladder[-1] == "reset" else None
