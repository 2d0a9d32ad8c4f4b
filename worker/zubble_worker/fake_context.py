"""Drives a policy through the four decision points as the loop does, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from zubble_queue.contracts.books import Left
from zubble_queue.contracts.decisions import Allow, Answer, Ask, Deny, StepView
from zubble_queue.contracts.model import CallOptions, Message
from zubble_worker.deciding import Deciding, Policy, unattended

_PLENTY: Final = Left(tokens=100_000, micro_usd=5_000_000, seconds=900.0)


@dataclass
class FakeContext:
    """What a policy sees of a run, to be set at will; no model, sandbox or store is there.

    Failures close here as they do in a run: a policy that raises or answers nonsense has said no, and at the
    assembly `zubble_worker.stopping.Stopping` is raised.
    """

    policy: Policy
    step: int = 1
    left: Left = _PLENTY
    last_exit_code: int | None = None
    messages: Sequence[Message] = (Message("user", "do it"),)
    options: CallOptions = field(default_factory=lambda: CallOptions(max_tokens=4_000, deadline_seconds=60.0))

    def __post_init__(self) -> None:
        self._deciding = Deciding(self.policy)

    @property
    def view(self) -> StepView:
        return StepView(self.step, self.left, self.last_exit_code)

    def before_step(self) -> Allow | Deny:
        return _alone(self._deciding.before_step(self.view))

    def assemble(self) -> tuple[Sequence[Message], CallOptions]:
        return self._deciding.assemble(self.view, self.messages, self.options)

    def before_dispatch(self, command: str, tool: str = "shell") -> Allow | Deny:
        return _alone(self._deciding.before_dispatch(self.view, tool, command))

    def wants_to_stop(self, action: Literal["submit", "report"] = "submit", report: str = "") -> Allow | Deny:
        return _alone(self._deciding.wants_to_stop(self.view, action, report))


def _alone(answer: Answer) -> Allow | Deny:
    """As in an unattended run."""
    return unattended(answer.question) if isinstance(answer, Ask) else answer
