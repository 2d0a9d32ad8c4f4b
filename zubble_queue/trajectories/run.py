"""One run folded from its events into steps: what was said, done, seen and spent in each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.event import Event


@dataclass(slots=True)
class Reply:
    """One finished model call."""

    kind: str
    """`step` or `repair`."""
    time: float
    finish: str
    text: str
    reasoning: str
    tool_calls: tuple[tuple[str, str], ...]
    """Name and arguments."""
    repetition: tuple[dict[str, Any], ...]
    """Rungs that the in-stream detector reached."""
    usage: Usage
    seconds: float
    tokens_saved: int
    prompt_share: float | None
    """Prompt tokens as the provider reported them, over the window."""


@dataclass(slots=True)
class RunStep:
    """One iteration of the loop."""

    number: int
    time: float
    replies: list[Reply] = field(default_factory=list)
    aside: Usage = field(default_factory=Usage)
    """Of calls that are no replies: opinions on a stream, and what a closed gate cut off."""
    format_errors: list[str] = field(default_factory=list)
    action: dict[str, Any] | None = None
    tool: str = ""
    """Empty where none was called."""
    arguments: str = ""
    fingerprint: str | None = None
    verdict: str = "allow"
    """Of the doom loop: allow, refuse or stop."""
    questions: list[dict[str, Any]] = field(default_factory=list)
    """What a person was asked; `answer` is the event of the answer, where there is one."""
    denied: str = ""
    """Why the policy said no."""
    result: dict[str, Any] | None = None
    """The command's end; None where it did not run, or its machine was lost."""
    checks: list[dict[str, Any]] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    told: str = ""
    """What the model read next, nudges first."""
    told_at: float = 0.0
    reset: dict[str, Any] | None = None
    """Why the context was cleared after it."""

    @property
    def usage(self) -> Usage:
        """Of all its calls."""
        return functools.reduce(Usage.plus, (reply.usage for reply in self.replies), self.aside)

    @property
    def kind(self) -> str:
        """The action, or `none` where no reply was understood."""
        return str(self.action["action"]) if self.action else "none"


@dataclass(slots=True)
class Run:
    """All of it."""

    steps: list[RunStep] = field(default_factory=list)
    restarts: list[tuple[int, float, str]] = field(default_factory=list)
    """Steps before it, time, what the model was told."""
    attempts: int = 0
    checks: list[dict[str, Any]] = field(default_factory=list)
    """After the last step: what decided the ending."""
    stopped: dict[str, Any] | None = None
    """`stop` and `reason`; None while it runs."""


def fold(events: Iterable[Event]) -> Run:
    """The run that the events tell of; types that say nothing about a step are passed over.

    Raises KeyError, TypeError or ValueError for events that no loop has written.
    """
    run = Run()
    for event in events:
        run.attempts = max(run.attempts, event.attempt)
        if handler := _HANDLERS.get(event.type):
            handler(run, event)
    return run


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is something else")
    return value


def _call_started(run: Run, event: Event) -> None:
    if not run.steps or run.steps[-1].number != event.data["step"]:
        run.steps.append(RunStep(int(event.data["step"]), event.time))


def _current(run: Run, event: Event) -> RunStep:
    """The last step; of events whose beginning is not there, one that begins here."""
    if not run.steps:
        run.steps.append(RunStep(int(event.data.get("step", 0)), event.time))
    return run.steps[-1]


def _aside(run: Run, event: Event) -> None:
    """A call without a reply: an opinion on a stream, or one that was closed behind the gate."""
    step = _current(run, event)
    step.aside = step.aside.plus(Usage.model_validate(event.data["usage"]))


def _call_finished(run: Run, event: Event) -> None:
    data, step = event.data, _current(run, event)
    usage, window = Usage.model_validate(data["usage"]), data.get("window")
    step.replies.append(
        Reply(
            kind="repair" if step.replies else "step",
            time=event.time,
            finish=_text(data["finish"]),
            text=_text(data["text"]),
            reasoning=_text(data.get("reasoning") or ""),
            tool_calls=tuple((str(name), str(arguments)) for name, arguments in data.get("tool_calls") or ()),
            repetition=tuple(data.get("repetition") or ()),
            usage=usage,
            seconds=data["seconds"],
            tokens_saved=data.get("tokens_saved", 0),
            prompt_share=usage.prompt_tokens / window if window and not usage.estimated_calls else None,
        )
    )


def _format_error(run: Run, event: Event) -> None:
    _current(run, event).format_errors.append(_text(event.data["reason"]))


def _action(run: Run, event: Event) -> None:
    _current(run, event).action = {name: value for name, value in event.data.items() if name != "step"}


def _dispatch(run: Run, event: Event) -> None:
    step = _current(run, event)
    step.fingerprint, step.verdict = _text(event.data["fingerprint"]), event.data["doom_loop"]
    _called(step, event.data)


def _denied(run: Run, event: Event) -> None:
    step = _current(run, event)
    step.denied = _text(event.data["reason"])
    _called(step, event.data)


def _called(step: RunStep, data: dict[str, Any]) -> None:
    step.tool, step.arguments = _text(data.get("tool", "shell")), _text(data["command"])


def _asked(run: Run, event: Event) -> None:
    _current(run, event).questions.append({**event.data, "answer": None})


def _answered(run: Run, event: Event) -> None:
    asked = (question for step in reversed(run.steps) for question in step.questions)
    known = next((one for one in asked if one["question_id"] == event.data["question_id"]), None)
    if known is not None:
        known["answer"] = event.data


def _finished(run: Run, event: Event) -> None:
    _current(run, event).result = event.data


def _verify_finished(run: Run, event: Event) -> None:
    if run.steps and not run.steps[-1].told:
        run.steps[-1].checks.append(event.data)
    else:
        run.checks.append(event.data)


def _signal(run: Run, event: Event) -> None:
    _current(run, event).signals.append(event.data)


def _observation(run: Run, event: Event) -> None:
    step = _current(run, event)
    step.told, step.told_at = _text(event.data["text"]), event.time


def _context_reset(run: Run, event: Event) -> None:
    step = _current(run, event)
    step.reset, step.told, step.told_at = event.data, event.data["text"], event.time


def _restarted(run: Run, event: Event) -> None:
    run.restarts.append((len(run.steps), event.time, event.data["text"]))


def _stopped(run: Run, event: Event) -> None:
    run.stopped = event.data


_HANDLERS: Final[dict[str, Callable[[Run, Event], None]]] = {
    "call_started": _call_started,
    "call_closed": _aside,
    "opinion": _aside,
    "call_finished": _call_finished,
    "format_error": _format_error,
    "action": _action,
    "dispatch": _dispatch,
    "asked": _asked,
    "answered": _answered,
    "denied": _denied,
    "command_finished": _finished,
    "verify_finished": _verify_finished,
    "signal": _signal,
    "observation": _observation,
    "context_reset": _context_reset,
    "restarted": _restarted,
    "stopped": _stopped,
}
