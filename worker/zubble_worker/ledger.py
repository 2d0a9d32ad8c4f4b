"""The plan ledger: what is planned, what is done with what evidence, what was abandoned and why (Z12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zubble_worker import buckets

_EVIDENCE_CHARS: Final = 120
_STEP_CHARS: Final = 300
_CAUSE_CHARS: Final = 400


@dataclass(slots=True)
class PlanStep:
    """One step of the plan; ids count from 1."""

    text: str
    evidence: str = ""
    """The last command for it that succeeded."""
    failure: str = ""
    """The last command for it that failed, and what it said; empty once one has succeeded."""
    done: bool = False


@dataclass(slots=True)
class PlanLedger:
    """Folded from the event log; rendered into every prompt under SESSION MEMORY."""

    steps: list[PlanStep] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    """(what, why) pairs."""
    last_action: str = "none"
    diverged: bool = False

    def plan(self, steps: list[str], *, cause: str = "") -> None:
        """Take a plan; what was pending and is not in it any more is abandoned, with the cause.

        The cause is what the agent says, and what failed last. A step that stays keeps its state.
        """
        new = [text[:_STEP_CHARS] for text in steps]
        old = {step.text: step for step in self.steps}
        self.abandoned += [
            (step.text, _cause(cause, step.failure))
            for step in self.steps
            if not step.done and step.text not in new
        ]
        self.steps = [old.pop(text) if text in old else PlanStep(text) for text in new]

    @property
    def expected(self) -> int | None:
        """The id of the first pending step."""
        return next((number for number, step in enumerate(self.steps, 1) if not step.done), None)

    def act(self, step_id: int | None, action: str) -> str | None:
        """Note an action before it is carried out; returns the divergence warning where it leaves the plan.

        Moving on to a later step marks those before it done, provided a command for them succeeded.
        """
        for step in self.steps[: max((step_id or 1) - 1, 0)]:
            step.done = step.done or bool(step.evidence)
        expected = self.expected
        self.last_action = action[:_EVIDENCE_CHARS]
        self.diverged = (
            bool(self.steps) and step_id is not None and expected is not None and step_id > expected
        )
        if not self.diverged:
            return None
        pending = self.steps[(expected or 1) - 1].text
        return (
            f"You act on plan step {step_id}, but step {expected} ({pending}) is still pending. "
            "Finish it first, or send a revised_plan."
        )

    def succeeded(self, step_id: int | None, command: str) -> None:
        """A command for a step ended with exit code 0."""
        self._show(step_id, f"`{command[:_EVIDENCE_CHARS]}` exited 0")

    def answered(self, step_id: int | None) -> None:
        """A person answered what a step was there to ask."""
        self._show(step_id, "a person answered")

    def _show(self, step_id: int | None, evidence: str) -> None:
        if step_id is not None and 1 <= step_id <= len(self.steps):
            step = self.steps[step_id - 1]
            step.evidence, step.failure = evidence, ""

    def failed(self, step_id: int | None, command: str, how: str) -> None:
        """A command for a step did not end with exit code 0; `how` is its end and what it said."""
        if step_id is not None and 1 <= step_id <= len(self.steps):
            said = " ".join(how.split())[:_EVIDENCE_CHARS]
            self.steps[step_id - 1].failure = f"`{command[:_EVIDENCE_CHARS]}` {said}"

    def render(self) -> str:
        """PLAN, ABANDONED APPROACHES and CURRENT STATE, as the prompt shows them."""
        lines = ["PLAN"]
        for number, step in enumerate(self.steps, 1):
            state = f"DONE ({step.evidence})" if step.done else "PENDING"
            lines.append(f"  {number}. [{state}] {step.text}")
        if not self.steps:
            lines.append("  none yet")
        if self.abandoned:
            lines.append("ABANDONED APPROACHES")
            lines += self._abandoned()
        expected = self.expected
        lines.append("CURRENT STATE")
        lines.append(f"  next expected step: {expected if expected is not None else 'none'}")
        lines.append(f"  last action: {self.last_action}")
        lines.append(f"  divergence: {'yes' if self.diverged else 'no'}")
        return "\n".join(lines)

    def _abandoned(self) -> list[str]:
        """The last ones with their causes, by area where they have one; before them how many there were."""
        old, last = buckets.split(self.abandoned)
        counted = buckets.counted((buckets.bucket_of(what, why), False) for what, why in old)
        lines = [f"  - {len(old)} earlier: {counted}"] if old else []
        for what, why in last:
            area = buckets.bucket_of(what, why)
            lines.append(f"  - {'' if area == 'other' else f'[{area}] '}{what}: {why}")
        return lines


def _cause(said: str, failure: str) -> str:
    parts = (said, f"last {failure}" if failure else "")
    return "; ".join(filter(None, parts))[:_CAUSE_CHARS] or "the plan was revised"
