"""Steps that fail: three in a row, four rounds without a success, commands that time out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zubble_worker.observers.actions import rungs, table
from zubble_worker.observers.actions.facts import Counters, Progress, Signal, StepFacts


@dataclass(slots=True)
class ErrorCascade(Counters):
    """Three failed steps on end (F5); a call that was refused or denied has failed."""

    streak: int = 0

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if step.end == "none":
            return ()
        self.streak = self.streak + 1 if step.failed else 0
        if self.streak != table.CASCADE.count:
            return ()
        text = (
            f"{self.streak} steps in a row have failed. Read the last error before you try anything else, "
            "and check what you take for granted."
        )
        return [
            Signal(
                "error-cascade",
                step.step,
                self.streak,
                table.CASCADE.value,
                "critical",
                "nudge",
                text,
                {"end": step.end},
            )
        ]


@dataclass(slots=True)
class NoSuccess(Counters):
    """Rounds of tool calls without one success: a nudge at 4 and at 8, then a fresh context (V1).

    Where the failures change something, or say something new, the second nudge is the last until 24.
    """

    streak: int = 0
    idle: int = 0
    """Steps in a row, of the streak, that brought nothing."""
    nudges: int = 0
    """Over the whole task."""

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:
        if step.end == "none":
            return ()
        if step.end == "ok":
            self.streak = self.idle = 0
            return ()
        self.streak += 1
        self.idle = 0 if progress.any else self.idle + 1
        every = table.FRUITLESS.count
        due = rungs.measure(self.streak, every, every, rungs.NUDGES_THEN_RESET)
        if due is None or (due == "reset" and self._is_getting_somewhere):
            return ()
        self.nudges += due == "nudge"
        text = (
            f"{self.streak} tool calls in a row have brought no success. This note is from the harness, not "
            "from the user: step back, find out the real state with a build or a test, then change the "
            "approach, or report why you cannot go on."
        )
        evidence = {"idle": self.idle, "nudges": self.nudges}
        return [Signal("no-success", step.step, self.streak, every, "critical", due, text, evidence)]

    @property
    def _is_getting_somewhere(self) -> bool:
        return self.idle < table.FRUITLESS.count and self.streak < table.FRUITLESS_AT_ALL.count


@dataclass(slots=True)
class Timeouts(Counters):
    """Commands on end that were killed at their time limit."""

    streak: int = 0

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if step.end == "none":
            return ()
        self.streak = self.streak + 1 if step.end == "timeout" else 0
        every = table.TIMEOUTS.count
        due = rungs.measure(self.streak, every, every, rungs.NUDGES_THEN_RESET)
        if due is None:
            return ()
        text = (
            f"{self.streak} commands in a row ran into their time limit. Run something smaller: one test, "
            "less data, or with a time limit of your own."
        )
        return [Signal("timeouts", step.step, self.streak, every, "critical", due, text)]
