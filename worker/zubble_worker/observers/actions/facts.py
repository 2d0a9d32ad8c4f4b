"""What the action observers see of a step, and what they say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol, Self

from zubble_queue.contracts.envelope import Guard
from zubble_worker.observers import Scope

Severity = Literal["info", "warning", "critical"]
Measure = Literal["none", "nudge", "refuse", "reset"]
"""In the order of their strength. A reset that is no longer allowed is a stop."""
End = Literal["ok", "failed", "timeout", "refused", "denied", "infra", "none"]
"""How a step ended. `infra`: the machinery failed, which is never the model's; `none`: it called no tool."""

MEASURES: tuple[Measure, ...] = ("none", "nudge", "refuse", "reset")


class ViolationType(StrEnum):
    """The four violations of the harness design (Z18)."""

    DOOM_LOOP = "DOOM_LOOP"
    TEXT_REPETITION = "TEXT_REPETITION"
    FORMAT_ERROR = "FORMAT_ERROR"
    CONTEXT_PRESSURE = "CONTEXT_PRESSURE"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call about to be dispatched."""

    arguments: str
    """The command, or a tool's arguments as JSON text."""
    state: str
    """Fingerprint of the work tree."""
    tool: str = "shell"


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One finished step, its call nested (C27)."""

    step: int
    """From 1."""
    end: End = "none"
    call: Call | None = None
    text: str = ""
    """The assistant's reply."""
    output: str = ""
    """What the call printed, both streams."""
    plan_step: int = 0
    """The furthest step of the plan that was reached; 0 without a plan."""
    spent: dict[str, float] = field(default_factory=dict)
    """Share of each limit that is used: iterations, tokens, spend, wallclock."""
    prompt_share: float | None = None
    """Prompt tokens as the provider reported them, over the window."""
    score: float | None = None
    """What a check found the work to be worth."""
    unfinished: bool = False
    """A claim to be done was rejected, or a context ended without completion."""
    format_errors: int = 0
    """Repairs in a row that failed; a step that was understood has none."""

    @property
    def failed(self) -> bool:
        return self.end in {"failed", "timeout", "denied", "refused"}


@dataclass(frozen=True, slots=True)
class Signal:
    """What one detector says about one step."""

    detector: str
    step: int
    count: float
    """What was counted, in the unit of the threshold."""
    threshold: float
    severity: Severity
    measure: Measure
    text: str
    """One or two sentences to the model; empty where it is only for the record."""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def violation(self) -> Violation | None:
        """In the harness design's words, where it has one."""
        kind = _VIOLATIONS.get(self.detector)
        return Violation(kind, self) if kind else None

    def as_dict(self) -> dict[str, Any]:
        """As its event holds it."""
        named = ((item.name, getattr(self, item.name)) for item in fields(self))
        violation = self.violation
        return {**dict(named), "type": violation.type.value if violation else None}


@dataclass(frozen=True, slots=True)
class Violation:
    """A signal by the type that the design decides by."""

    type: ViolationType
    signal: Signal


_VIOLATIONS: dict[str, ViolationType] = {
    "tool-cycle": ViolationType.DOOM_LOOP,
    "text-repetition": ViolationType.TEXT_REPETITION,
    "format-errors": ViolationType.FORMAT_ERROR,
    "context-pressure": ViolationType.CONTEXT_PRESSURE,
}


class Detector(Protocol):
    """A pure object; equal steps in equal order make equal signals."""

    def after(self, step: StepFacts, progress: Progress) -> Sequence[Signal]: ...

    def reset(self, scope: Scope) -> None: ...

    def state(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought, by evidence and not by what the model says."""

    changed: bool = False
    """The work tree is another one than before."""
    new_target: bool = False
    """A path or identifier that was not worked on before."""
    new_result: bool = False
    """Output that was not seen before, and that does not only repeat the command's own words."""
    plan_advanced: bool = False
    waiting: bool = False
    """The step waited, and has not done so too often."""

    @property
    def any(self) -> bool:
        return self.changed or self.new_target or self.new_result or self.plan_advanced


class Counters:
    """State as JSON, for detectors that are dataclasses of counters and strings."""

    context_scoped: ClassVar[bool] = False
    """Whether a cleared context clears this too; call and nudge history stay (C37)."""

    def state(self) -> dict[str, Any]:
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(**{name: _plain(value) for name, value in state.items()})

    def reset(self, scope: Scope) -> None:
        """Begin anew with the task, or with its context."""
        if scope == "task" or (scope == "context" and self.context_scoped):
            self.__init__()  # type: ignore[misc]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value


def is_guarded(signal: Signal, guards: Sequence[Guard]) -> bool:
    """Whether the signal ends the run until a human clears it (C27, C38)."""
    return signal.severity == "critical" and signal.detector in guards
