"""What was asked of a person in a run, and what of it is still to be carried out; folded from the events.

A run that was interrupted by a question takes up the action it was about: the answer is known then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.contracts.envelope import Guard
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.question import Answer
from zubble_worker.observers.actions.facts import Signal, is_guarded


@dataclass(slots=True)
class Inquiry:
    """The questions of one run.

    Args:
        guards: Detectors whose critical signal ends the run unless a person clears it (C27).
    """

    guards: tuple[Guard, ...] = ()
    heard: set[str] = field(default_factory=set)
    """Ids of the questions whose answers the run has."""
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    """Of this step, by cause and text."""
    due: dict[str, Any] | None = None
    """The action that was put off for a question, as its event has it."""
    met: Signal | None = None
    """The guarded signal that ends the run."""
    extended: Counter[str] = field(default_factory=Counter)
    """How often each cap was extended by as much again."""
    _action: dict[str, Any] | None = None

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        handler = _HANDLERS.get(event.type)
        if handler:
            handler(self, event.data)

    def _call_started(self, _data: dict[str, Any]) -> None:
        self.answers.clear()
        self.due = self._action = None

    def _action_read(self, data: dict[str, Any]) -> None:
        self._action = {name: value for name, value in data.items() if name != "step"}

    def _asked(self, data: dict[str, Any]) -> None:
        if data["cause"] in {"agent", "policy"}:
            self.due = self._action

    def _answered(self, data: dict[str, Any]) -> None:
        answer = Answer(text=data["text"], allowed=data["allowed"], by=data["by"])
        self.heard.add(data["question_id"])
        self.answers[data["cause"], data["question"]] = answer
        if answer.allowed and data["cause"] == "cap":
            self.extended[data["subject"]] += 1
        if answer.allowed and data["cause"] == "guard":
            self.met = None

    def _carried_out(self, _data: dict[str, Any]) -> None:
        self.due = None

    def _step_done(self, _data: dict[str, Any]) -> None:
        self.due = self._action = None

    def _signal(self, data: dict[str, Any]) -> None:
        signal = Signal(**{name: value for name, value in data.items() if name != "type"})
        if self.met is None and is_guarded(signal, self.guards):
            self.met = signal


_HANDLERS: Final[dict[str, Callable[[Inquiry, dict[str, Any]], None]]] = {
    "call_started": Inquiry._call_started,  # noqa: SLF001
    "action": Inquiry._action_read,  # noqa: SLF001
    "asked": Inquiry._asked,  # noqa: SLF001
    "answered": Inquiry._answered,  # noqa: SLF001
    "dispatch": Inquiry._carried_out,  # noqa: SLF001
    "denied": Inquiry._carried_out,  # noqa: SLF001
    "verify_finished": Inquiry._carried_out,  # noqa: SLF001
    "premature_stop": Inquiry._carried_out,  # noqa: SLF001
    "observation": Inquiry._step_done,  # noqa: SLF001
    "context_reset": Inquiry._step_done,  # noqa: SLF001
    "signal": Inquiry._signal,  # noqa: SLF001
}
