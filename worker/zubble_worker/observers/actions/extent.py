"""How much a run has used: steps, one tool, its limits; and what its work is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zubble_worker.observers.actions import table
from zubble_worker.observers.actions.facts import Counters, Progress, Signal, StepFacts
from zubble_worker.observers.actions.targets import program


@dataclass(slots=True)
class ExcessiveSteps(Counters):
    """More than 20 steps, more than 40, 80: once per power of two (F5)."""

    steps: int = 0
    bound: int = table.EXCESS.count

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        self.steps += 1
        if self.steps <= self.bound:
            return ()
        passed, self.bound = self.bound, 2 * self.bound
        text = f"This is step {self.steps}. Work towards an end: finish, or reduce what you attempt."
        return [Signal("excessive-steps", step.step, self.steps, passed, "warning", "nudge", text)]


@dataclass(slots=True)
class ToolDominance(Counters):
    """One tool, or program, makes up most of the calls (F5). For the record; told when it begins."""

    calls: dict[str, int] = field(default_factory=dict)
    dominated: bool = False

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if step.call is None:
            return ()
        name = program(step.call.tool, step.call.arguments)
        self.calls[name] = self.calls.get(name, 0) + 1
        total = sum(self.calls.values())
        most, calls = max(self.calls.items(), key=lambda item: item[1])
        share, was = calls / total, self.dominated
        self.dominated = total >= table.DOMINANCE_STEPS.count and share > table.DOMINANCE.value
        if was or not self.dominated:
            return ()
        evidence = {"tool": most, "calls": calls, "of": total}
        return [
            Signal("tool-dominance", step.step, share, table.DOMINANCE.value, "info", "none", "", evidence)
        ]


@dataclass(slots=True)
class BudgetWarnings(Counters):
    """Each limit is warned of once at 0.8, and noted once when it is used up (F3, F5)."""

    warned: list[str] = field(default_factory=list)

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        return [
            signal
            for limit, share in sorted(step.spent.items())
            for signal in self._of(step.step, limit, share)
        ]

    def _of(self, step: int, limit: str, share: float) -> list[Signal]:
        spent = share >= table.BUDGET_SPENT.value
        threshold = table.BUDGET_SPENT if spent else table.BUDGET_WARNING
        mark = f"{limit} {threshold.value:g}"
        if share < threshold.value or mark in self.warned:
            return []
        self.warned.append(mark)
        text = (
            f"{share:.0%} of the {limit} of this task are used. Converge: finish what is begun, and submit."
        )
        severity, measure = ("critical", "none") if spent else ("warning", "nudge")
        return [
            Signal(
                "budget",
                step,
                share,
                threshold.value,
                severity,  # type: ignore[arg-type]  # one of the two words above
                measure,  # type: ignore[arg-type]
                "" if spent else text,
                {"limit": limit},
            )
        ]


@dataclass(slots=True)
class QualityDrop(Counters):
    """A check found the work to be worth less than 0.7 of the best before; without scores it is silent."""

    best: float | None = None

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if step.score is None:
            return ()
        best, self.best = self.best, max(step.score, self.best if self.best is not None else step.score)
        if best is None or best <= 0 or step.score >= table.QUALITY.value * best:
            return ()
        text = "The last check found your work worth less than an earlier one. Undo what made it worse."
        evidence = {"score": step.score, "best": best}
        return [
            Signal(
                *("quality-drop", step.step, step.score / best, table.QUALITY.value, "warning", "nudge"),
                text,
                evidence,
            )
        ]


@dataclass(slots=True)
class Unfinished(Counters):
    """Claims to be done that were rejected, and contexts that ended without completion (Z21)."""

    count: int = 0

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        if not step.unfinished:
            return ()
        self.count += 1
        if self.count % table.UNFINISHED.count:
            return ()
        text = (
            f"{self.count} times the task was not complete. Simplify: do the smallest thing that brings it "
            "nearer to its success criteria, and look at that alone."
        )
        threshold = table.UNFINISHED.value
        return [Signal("unfinished", step.step, self.count, threshold, "warning", "nudge", text)]
