"""Shows a run to the action observers: events become steps, live and when they are folded again.

A live run is judged before its events are written, since a judgement decides what is written. The events then
are no news; where they are folded without having been judged live, they are judged as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.contracts.ending import MICRO, Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_worker.observers.actions.facts import Call, End, StepFacts
from zubble_worker.observers.actions.watch import Judgement, Watch
from zubble_worker.observers.doom_loop import Verdict

_NOTHING: Final = Judgement()
_TIMEOUT_EXIT_CODE: Final = 124
"""Of coreutils' `timeout`, when its time was up."""


@dataclass(slots=True)
class _Step:
    """What is known of a step so far."""

    number: int = 0
    text: str = ""
    call: Call | None = None
    verdict: Verdict | None = None
    end: End = "none"
    output: str = ""
    claimed: bool = False
    rejected: bool = False
    prompt_share: float | None = None


@dataclass(slots=True)
class Watching:
    """The watch of one run, fed from its events."""

    envelope: TaskEnvelope
    watch: Watch
    calls: int = 0
    """Model calls begun."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    """Of calls, commands and checks."""
    format_errors: int = 0
    """Repairs in a row that failed."""
    plan_length: int = 0
    plan_step: int = 0
    tree: str = ""
    score: float | None = None
    """Of the last check, until a step has taken it."""
    step: _Step = field(default_factory=_Step)
    is_open: bool = False
    """Whether the step goes on."""
    judged: bool = False
    """Whether the call of the next `dispatch` was judged already."""

    def judge(self, call: Call) -> Verdict:
        """Live, before the call's `dispatch` is written."""
        self.step.call, self.step.verdict = call, self.watch.before(call)
        self.judged = True
        return self.step.verdict

    def close(self) -> Judgement:
        """The step is over: what it comes to. Nothing, when it was closed already."""
        if not self.is_open:
            return _NOTHING
        self.is_open = False
        step, score, self.score = self.step, self.score, None
        facts = StepFacts(
            step.number,
            end=step.end,
            call=step.call,
            text=step.text,
            output=step.output,
            plan_step=self.plan_step,
            spent=self._spent(),
            prompt_share=step.prompt_share,
            score=score,
            unfinished=step.claimed and step.rejected,
            format_errors=self.format_errors,
        )
        return self.watch.after(facts, step.verdict)

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        handler = _HANDLERS.get(event.type)
        if handler:
            handler(self, event.data)

    def _spent(self) -> dict[str, float]:
        budget = self.envelope.budget
        return {
            "iterations": self.step.number / budget.max_iterations,
            "tokens": self.usage.tokens / budget.max_tokens,
            "spend": self.usage.spend_micro_usd / (budget.max_spend_usd * MICRO),
            "wallclock": self.seconds / budget.max_wallclock_seconds,
        }

    def _call_started(self, data: dict[str, Any]) -> None:
        if data["step"] != self.step.number:
            self.close()
            self.step, self.is_open = _Step(data["step"]), True
        self.calls += 1

    def _call_finished(self, data: dict[str, Any]) -> None:
        usage = Usage.model_validate(data["usage"])
        self.usage, self.seconds = self.usage.plus(usage), self.seconds + data["seconds"]
        if data["finish"] in {"stop", "length"}:
            self.step.text = data["view"]
        if data.get("window") and not usage.estimated_calls:
            self.step.prompt_share = usage.prompt_tokens / data["window"]

    def _format_error(self, data: dict[str, Any]) -> None:
        self.format_errors += data.get("kind") == "repair"

    def _action(self, data: dict[str, Any]) -> None:
        self.format_errors = 0
        self.step.claimed = data["action"] == "submit"
        if steps := data.get("revised_plan") or data.get("steps"):
            self.plan_length = len(steps)
        if self.plan_length:
            self.plan_step = max(self.plan_step, min(data.get("plan_step_id") or 1, self.plan_length))

    def _dispatch(self, data: dict[str, Any]) -> None:
        self.tree = data["fingerprint"]
        if not self.judged:
            self.judge(Call(data["command"], data["fingerprint"], data.get("tool", "shell")))
        self.judged = False
        self.step.end = "refused" if data["doom_loop"] != "allow" else "infra"

    def _denied(self, data: dict[str, Any]) -> None:
        self.step.call, self.step.end = Call(data["command"], self.tree, data["tool"]), "denied"

    def _command_finished(self, data: dict[str, Any]) -> None:
        self.seconds += data["seconds"]
        self.step.output = f"{data['stdout']}\n{data['stderr']}"
        if data["timed_out"] or data["exit_code"] == _TIMEOUT_EXIT_CODE:
            self.step.end = "timeout"
        else:
            self.step.end = "ok" if data["exit_code"] == 0 else "failed"

    def _verify_finished(self, data: dict[str, Any]) -> None:
        self.seconds += data["seconds"]
        self.step.rejected = data["verdict"] != "passed"
        reward = data.get("reward")
        self.score = float(reward) if isinstance(reward, int | float) else None

    def _ended(self, _data: dict[str, Any]) -> None:
        self.close()

    def _context_reset(self, _data: dict[str, Any]) -> None:
        self.close()
        self.format_errors = 0
        self.watch.reset("context")

    def _answered(self, data: dict[str, Any]) -> None:
        if data["cause"] == "guard" and data["allowed"]:
            self.watch.begin_anew(data["subject"])


_HANDLERS: Final[dict[str, Callable[[Watching, dict[str, Any]], None]]] = {
    "call_started": Watching._call_started,  # noqa: SLF001
    "call_finished": Watching._call_finished,  # noqa: SLF001
    "format_error": Watching._format_error,  # noqa: SLF001
    "action": Watching._action,  # noqa: SLF001
    "dispatch": Watching._dispatch,  # noqa: SLF001
    "denied": Watching._denied,  # noqa: SLF001
    "command_finished": Watching._command_finished,  # noqa: SLF001
    "verify_finished": Watching._verify_finished,  # noqa: SLF001
    "signal": Watching._ended,  # noqa: SLF001
    "observation": Watching._ended,  # noqa: SLF001
    "context_reset": Watching._context_reset,  # noqa: SLF001
    "answered": Watching._answered,  # noqa: SLF001
}
