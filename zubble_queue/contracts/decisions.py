"""The four decision points of the loop (F16): what a policy may decide, and where.

A policy that raises, or answers with something else than these, has said no: it fails closed. Where that is
before a step or at the assembly of a request, the run ends as `blocked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from zubble_queue.contracts.books import Left
from zubble_queue.contracts.model import CallOptions, Message


@dataclass(frozen=True, slots=True)
class StepView:
    """What a policy sees of the run."""

    step: int
    """The step about to be made, from 1."""
    left: Left
    last_exit_code: int | None


@dataclass(frozen=True, slots=True)
class Allow:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not; the reason is told to the model (dispatch) or ends the run (step)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must say; where nobody is there, that is a Deny with the question in its reason."""

    question: str


Answer = Allow | Deny | Ask


class BeforeStep(Protocol):
    """Ceilings: may the next step be made?"""

    def before_step(self, view: StepView) -> Answer: ...


class RequestAssembly(Protocol):
    """Routing: with what is the model asked?"""

    def assemble(
        self, view: StepView, messages: Sequence[Message], options: CallOptions
    ) -> tuple[Sequence[Message], CallOptions]: ...


class BeforeDispatch(Protocol):
    """The gate: may this command run?"""

    def before_dispatch(self, view: StepView, tool: str, command: str) -> Answer: ...


class WantsToStop(Protocol):
    """Termination: the model says it is done or gives up; Deny sends it back to work."""

    def wants_to_stop(self, view: StepView, action: Literal["submit", "report"], report: str) -> Answer: ...


class Decisions(BeforeStep, RequestAssembly, BeforeDispatch, WantsToStop):
    """All four with their defaults: everything is allowed, nothing is changed. Override what you need."""

    def before_step(self, view: StepView) -> Answer:  # noqa: ARG002
        return Allow()

    def assemble(
        self,
        view: StepView,  # noqa: ARG002
        messages: Sequence[Message],
        options: CallOptions,
    ) -> tuple[Sequence[Message], CallOptions]:
        return messages, options

    def before_dispatch(self, view: StepView, tool: str, command: str) -> Answer:  # noqa: ARG002
        return Allow()

    def wants_to_stop(self, view: StepView, action: Literal["submit", "report"], report: str) -> Answer:  # noqa: ARG002
        return Allow()
