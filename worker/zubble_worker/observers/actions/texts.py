"""What the model says from turn to turn: the same again, unusable, or too much for its window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from zubble_worker.observers.actions import rungs, table
from zubble_worker.observers.actions.facts import Counters, Progress, Signal, StepFacts

_KEPT_CHARS: Final = 4_000


@dataclass(slots=True)
class TextRepetition(Counters):
    """The same, or nearly the same, reply turn after turn (Z18, Z25).

    Turns that say the same and bring something new are work: a page read on, a test after an edit, a wait.
    """

    context_scoped: ClassVar[bool] = True

    last: str = ""
    turns: int = 0
    """With this text, on end."""

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:
        text = step.text[:_KEPT_CHARS]
        if not text:
            return ()
        likeness = similarity(self.last, text)
        alike = likeness >= table.NEAR_TEXT.value and not progress.any and not progress.waiting
        self.turns = self.turns + 1 if alike else 1
        self.last = text
        every = table.SAME_TEXT.count
        due = rungs.measure(self.turns, every, every, rungs.NUDGES_THEN_RESET)
        if due is None:
            return ()
        said = (
            f"Your last {self.turns} replies say the same, and nothing has changed. Do something else, or "
            "report why you cannot go on."
        )
        evidence = {"similarity": round(likeness, 3)}
        return [Signal("text-repetition", step.step, self.turns, every, "critical", due, said, evidence)]


@dataclass(slots=True)
class FormatErrors(Counters):
    """Repairs that failed; the protocol's limit ends the run."""

    context_scoped: ClassVar[bool] = True

    count: int = 0

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        self.count = step.format_errors
        if self.count < table.FORMAT_ERRORS.count:
            return ()
        threshold = table.FORMAT_ERRORS.value
        return [Signal("format-errors", step.step, self.count, threshold, "warning", "none", "")]


@dataclass(slots=True)
class ContextPressure(Counters):
    """The prompt, as the provider counted it, fills 0.8 of the window: older results are to go (C13, C14)."""

    context_scoped: ClassVar[bool] = True

    high: bool = False

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if step.prompt_share is None:
            return ()
        was, self.high = self.high, step.prompt_share >= table.PRESSURE.value
        if was or not self.high:
            return ()
        threshold, share = table.PRESSURE.value, round(step.prompt_share, 3)
        return [Signal("context-pressure", step.step, share, threshold, "warning", "none", "")]


def similarity(one: str, other: str) -> float:
    """Jaccard index of the word trigrams, 0 to 1; short texts by their words, equal texts are 1."""
    if one == other:
        return 1.0 if one else 0.0
    mine, others = _trigrams(one), _trigrams(other)
    both = len(mine | others)
    return len(mine & others) / both if both else 0.0


def _trigrams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    size = min(3, len(words))
    return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)} if size else set()
