"""Runs that succeed and get nowhere: nothing new, only reading on, or the same failure after every edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from zubble_worker.observers.actions import rungs, table
from zubble_worker.observers.actions.facts import Counters, Progress, Signal, StepFacts
from zubble_worker.observers.actions.results import call_key, digest

_KEPT_COMMANDS: Final = 50
_SHOWN_CHARS: Final = 200


@dataclass(slots=True)
class NoProgress(Counters):
    """Steps on end with no change of the tree, no new target, no new result and no step of the plan.

    A nudge, then one call without a new target is refused, then a fresh context; waiting is none of it.
    """

    idle: int = 0
    refusing: bool = False
    """The next call without a new target is refused, once."""

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:
        if progress.any:
            self.idle, self.refusing = 0, False
            return ()
        if progress.waiting:
            return ()
        self.idle += 1
        if step.end == "refused":
            self.refusing = False
        due = rungs.measure(self.idle, table.STALL.count, table.STALL_AGAIN.count, rungs.NUDGE_REFUSE_RESET)
        if due is None:
            return ()
        self.refusing = self.refusing or due == "refuse"
        text = (
            f"For {self.idle} steps nothing has changed and nothing new was learnt: no other file, no new "
            "result. Do what changes something, or report why you cannot go on."
        )
        threshold = table.STALL.value
        return [Signal("no-progress", step.step, self.idle, threshold, "critical", due, text)]


@dataclass(slots=True)
class Reading(Counters):
    """Only new output of known targets, for very long: every page differs, nothing is done (stella #4034)."""

    steps: int = 0

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:
        if progress.changed or progress.new_target or progress.plan_advanced:
            self.steps = 0
        self.steps += not progress.waiting
        every = table.READING.count
        due = rungs.measure(self.steps, every, every, rungs.NUDGES)
        if due is None or progress.waiting:
            return ()
        text = f"You have only read for {self.steps} steps. Use what you know, or search instead of paging."
        return [Signal("reading", step.step, self.steps, every, "warning", due, text)]


@dataclass(slots=True)
class Churn(Counters):
    """The same command fails in the same way, whatever was changed before it (V3: a file edited 17 times)."""

    failures: dict[str, str] = field(default_factory=dict)
    """By command: its last failure, how often it was the same, the tree it was in."""

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]:  # noqa: ARG002
        call = step.call
        if call is None or step.end not in {"ok", "failed", "timeout"}:
            return ()
        key = call_key(call.tool, call.arguments)
        last, _, rest = self.failures.pop(key, "").partition(" ")
        times, _, tree = rest.partition(" ")
        if step.end == "ok":
            return ()
        result = digest(step.end, step.output)
        count = int(times) + (tree != call.state) if result == last else 1
        self.failures[key] = f"{result} {count} {call.state}"
        while len(self.failures) > _KEPT_COMMANDS:
            self.failures.pop(next(iter(self.failures)))
        if result == last and count == int(times):
            return ()
        due = rungs.measure(count, table.CHURN.count, table.CHURN_AGAIN.count, rungs.NUDGES_THEN_RESET)
        if due is None:
            return ()
        text = (
            f"This command has failed {count} times in exactly the same way, whatever you changed before. "
            "What you change has nothing to do with it: find the cause of the failure first."
        )
        shown = call.arguments[:_SHOWN_CHARS].encode("utf-8", "replace").decode("utf-8")
        threshold = table.CHURN.value
        return [Signal("churn", step.step, count, threshold, "critical", due, text, {"call": shown})]
