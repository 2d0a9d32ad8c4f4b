"""A sealed task's run with what its record adds: what every writer of trajectories is given."""

from __future__ import annotations

from dataclasses import dataclass

from zubble_queue.contracts.ending import Ending
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.trajectories.run import Run


@dataclass(frozen=True, slots=True)
class SealedRun:
    """A run that has ended."""

    envelope: TaskEnvelope
    ending: Ending
    events: tuple[Event, ...]
    """All of them, also of attempts whose work was lost; long strings put back."""
    run: Run
    """Of those that led to the ending."""
    instructions: str = ""
    patch: str = ""
    """What the agent changed; empty where it changed nothing, or it is not to be had any more."""

    @property
    def task(self) -> str:
        """The task as the first message."""
        task = self.envelope.task
        parts = [task.description, self.instructions, f"Success criteria: {task.success_criteria}"]
        return "\n\n".join(part for part in parts if part)

    @property
    def summary(self) -> dict[str, object]:
        """How it ended."""
        return {
            "outcome": self.ending.outcome,
            "stop": self.ending.stop.value,
            "verdict": self.ending.verdict.value,
            "reward": self.ending.model_dump(mode="json")["reward"],
            "reason": self.ending.reason,
            "report": self.ending.report,
            "iterations_used": self.ending.iterations_used,
            "attempts": self.run.attempts,
        }
