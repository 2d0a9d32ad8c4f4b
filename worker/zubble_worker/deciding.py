"""The one helper through which a run asks its policy at the four decision points; it fails closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from zubble_queue.contracts.decisions import Allow, Answer, Ask, Decisions, Deny, StepView
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model import CallOptions, Message
from zubble_worker.stopping import Stopping

Policy = Decisions | Callable[[], Decisions]
"""A policy, or what makes one when it is first needed."""
_REASON_CHARS: Final = 300


class Deciding:
    """Asks a policy that is made at first sight, at whichever point that is.

    A policy that cannot be made, raises, or answers with something else than the point takes, has said no
    (F6, F16); one that could not be made is not tried again.

    Args:
        policy: By default one that allows everything.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._make = policy if not isinstance(policy, Decisions) else None
        self._policy = policy if isinstance(policy, Decisions) else None
        if policy is None:
            self._policy = Decisions()

    def before_step(self, view: StepView) -> Answer:
        return self._answer(lambda policy: policy.before_step(view))

    def assemble(
        self, view: StepView, messages: Sequence[Message], options: CallOptions
    ) -> tuple[Sequence[Message], CallOptions]:
        """With what the model is asked. Raises Stopping where the policy has no usable answer."""
        try:
            answer = self._seen().assemble(view, messages, options)
        except Exception as error:  # without a route nothing is asked
            raise Stopping(Stop.BLOCKED, _failure(error)) from error
        if problem := _unusable(answer, options):
            raise Stopping(Stop.BLOCKED, problem)
        return answer

    def before_dispatch(self, view: StepView, tool: str, command: str) -> Answer:
        return self._answer(lambda policy: policy.before_dispatch(view, tool, command))

    def wants_to_stop(self, view: StepView, action: Literal["submit", "report"], report: str) -> Answer:
        return self._answer(lambda policy: policy.wants_to_stop(view, action, report))

    def _answer(self, ask: Callable[[Decisions], Answer]) -> Answer:
        try:
            answer = ask(self._seen())
        except Exception as error:  # noqa: BLE001 - a policy is foreign code; whatever it raises means no
            return Deny(_failure(error))
        return answer if isinstance(answer, Allow | Deny | Ask) else Deny("policy gave no answer")

    def _seen(self) -> Decisions:
        if self._policy is None:
            make, self._make = self._make, None
            made = make() if make else None
            if not isinstance(made, Decisions):
                raise TypeError("there is no policy")
            self._policy = made
        return self._policy


def unattended(question: str) -> Deny:
    """The answer to an Ask where nobody is there."""
    return Deny(f"a person would have to allow this, and nobody is here: {question}")


def _failure(error: Exception) -> str:
    return f"policy failed: {type(error).__name__}: {error}"[:_REASON_CHARS]


def _unusable(answer: object, asked: CallOptions) -> str:
    """What is wrong with a route; empty where nothing is."""
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], CallOptions):
        return "policy gave no answer"
    messages, options = answer
    if (
        not isinstance(messages, Sequence)
        or not messages
        or not all(isinstance(m, Message) for m in messages)
    ):
        return "policy gave no messages"
    if options.max_tokens > asked.max_tokens or options.deadline_seconds > asked.deadline_seconds:
        return "policy asked for more than the budget bears"
    return ""
