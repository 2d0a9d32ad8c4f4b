"""All action observers as one: asked before each call, told of each step, answering with one measure.

It sees facts, not events, so it judges alike a live run, one that is folded from its events, and a stored
trajectory of another harness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.envelope import Guard
from zubble_worker.observers import Scope
from zubble_worker.observers.actions import table
from zubble_worker.observers.actions.extent import (
    BudgetWarnings,
    ExcessiveSteps,
    QualityDrop,
    ToolDominance,
    Unfinished,
)
from zubble_worker.observers.actions.facts import (
    MEASURES,
    Call,
    Detector,
    Measure,
    Signal,
    StepFacts,
    is_guarded,
)
from zubble_worker.observers.actions.failures import ErrorCascade, NoSuccess, Timeouts
from zubble_worker.observers.actions.progress import Evidence
from zubble_worker.observers.actions.stalls import Churn, NoProgress, Reading
from zubble_worker.observers.actions.texts import ContextPressure, FormatErrors, TextRepetition
from zubble_worker.observers.doom_loop import DoomLoop, Verdict

_STATE_VERSION: Final = 1
_SEVERITIES: Final = ("info", "warning", "critical")
_DETECTORS: Final[dict[str, Any]] = {
    "no-progress": NoProgress,
    "churn": Churn,
    "text-repetition": TextRepetition,
    "no-success": NoSuccess,
    "timeouts": Timeouts,
    "error-cascade": ErrorCascade,
    "quality-drop": QualityDrop,
    "unfinished": Unfinished,
    "reading": Reading,
    "budget": BudgetWarnings,
    "excessive-steps": ExcessiveSteps,
    "format-errors": FormatErrors,
    "context-pressure": ContextPressure,
    "tool-dominance": ToolDominance,
}
"""By the name of their signals, the most telling first."""
_STOPS: Final = {"text-repetition": Stop.LOOP_TEXT, "tool-cycle": Stop.LOOP_ACTION}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a step comes to."""

    measure: Measure = "none"
    signals: tuple[Signal, ...] = ()
    """The strongest first."""
    blocked: Signal | None = None
    """The guarded signal that ends the run."""

    @property
    def note(self) -> str:
        """One message for the model, the strongest first (C25)."""
        return "\n".join(signal.text for signal in self.signals if signal.text and signal.measure != "none")

    @property
    def stop(self) -> Stop:
        """The stop of a reset that is no longer allowed."""
        return _STOPS.get(self.signals[0].detector, Stop.LOOP_STALL) if self.signals else Stop.LOOP_STALL


@dataclass(slots=True)
class Watch:
    """The action observers of one task.

    Args:
        guards: Detectors whose critical signal blocks the run.
    """

    guards: tuple[Guard, ...] = ()
    fired: dict[str, int] = field(default_factory=dict)
    """Signals so far, by detector."""
    _doom_loop: DoomLoop = field(default_factory=DoomLoop)
    _evidence: Evidence = field(default_factory=Evidence)
    _detectors: dict[str, Detector] = field(
        default_factory=lambda: {name: kind() for name, kind in _DETECTORS.items()}
    )

    def before(self, call: Call) -> Verdict:
        """Judge a call that is about to be dispatched; each is to be shown exactly once."""
        verdict = self._doom_loop.check(call.arguments, self._evidence.seen(call), tool=call.tool)
        if verdict.kind != "allow":
            return verdict
        stalled = self._detectors["no-progress"]
        if not isinstance(stalled, NoProgress) or not stalled.refusing:
            return verdict
        if self._evidence.new_targets(call) or self._evidence.is_patient_wait(call):
            return verdict
        return Verdict("refuse", _REFUSED, {"idle": stalled.idle})

    def after(self, step: StepFacts, refusal: Verdict | None = None) -> Judgement:
        """Take in a finished step.

        Args:
            step: What happened.
            refusal: What `before` said about its call, where it was not let through.
        """
        progress = self._evidence.add(step)
        signals: list[Signal] = []
        if refusal and refusal.kind != "allow" and "cycle" in refusal.evidence:
            signals.append(_cycle(step.step, refusal))
        watching = {"budget": self._detectors["budget"]} if step.end == "infra" else self._detectors
        for detector in watching.values():
            signals += detector.after(step, progress)
        return self._judged([self._raised(signal) for signal in signals])

    def _raised(self, signal: Signal) -> Signal:
        """A share of one tool is worth noting; to whoever guards it, it is critical."""
        if signal.detector != "tool-dominance" or "tool-dominance" not in self.guards:
            return signal
        return Signal(
            *(signal.detector, signal.step, signal.count, signal.threshold, "critical", "none"),
            "",
            signal.evidence,
        )

    def _judged(self, signals: list[Signal]) -> Judgement:
        signals.sort(key=_strength, reverse=True)
        for signal in signals:
            self.fired[signal.detector] = self.fired.get(signal.detector, 0) + 1
        blocked = next((signal for signal in signals if is_guarded(signal, self.guards)), None)
        strongest: Measure = max((signal.measure for signal in signals), key=MEASURES.index, default="none")
        return Judgement(strongest, tuple(signals), blocked)

    def reset(self, scope: Scope) -> None:
        """A cleared context forgets what was said; calls, failures and nudges stay (C37)."""
        self._doom_loop.reset(scope)
        self._evidence.reset(scope)
        for detector in self._detectors.values():
            detector.reset(scope)
        if scope == "task":
            self.fired.clear()

    def begin_anew(self, detector: str) -> None:
        """A person has cleared what a detector saw: it counts from nothing (C27)."""
        cleared = self._doom_loop if detector == "tool-cycle" else self._detectors[detector]
        cleared.reset("task")

    def state(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "version": _STATE_VERSION,
            "guards": list(self.guards),
            "fired": dict(self.fired),
            "tool-cycle": self._doom_loop.state(),
            "evidence": self._evidence.state(),
            "detectors": {name: detector.state() for name, detector in self._detectors.items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The watch that `state` was taken from. Raises ValueError when it is of another version."""
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"watch state of version {state.get('version')!r}, not {_STATE_VERSION}")
        return cls(
            tuple(state["guards"]),
            dict(state["fired"]),
            DoomLoop.from_state(state["tool-cycle"]),
            Evidence.from_state(state["evidence"]),
            {name: kind.from_state(state["detectors"][name]) for name, kind in _DETECTORS.items()},
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watch) and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]  # it changes


_REFUSED: Final = (
    "This note is from the harness, not from the user: the command was not run. It is about nothing that you "
    "have not looked at already, and for many steps nothing new has come of that. Change something, look at "
    "something else, or report why you cannot go on."
)


def _cycle(step: int, refusal: Verdict) -> Signal:
    """The doom loop's word on a call, as a signal; its own text has answered the model already."""
    return Signal(
        *("tool-cycle", step, refusal.evidence["seen"], table.CYCLE_REPEATS.value, "critical"),
        measure="reset" if refusal.kind == "stop" else "refuse",
        text="",
        evidence=dict(refusal.evidence),
    )


def _strength(signal: Signal) -> tuple[int, int]:
    return MEASURES.index(signal.measure), _SEVERITIES.index(signal.severity)
