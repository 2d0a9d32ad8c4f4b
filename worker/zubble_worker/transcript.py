"""The run's state, folded from its events; the same fold serves a live run and one that is taken up again.

The event log is the raw, complete record. What the model sees is a view: replies cut, degenerate ones left
out, old observations dropped when the window is full, SESSION MEMORY on the last message only (C9, Z12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.contracts.books import Left
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.model import Message, estimate_prompt_tokens
from zubble_worker.inquiry import Inquiry
from zubble_worker.ledger import PlanLedger
from zubble_worker.observers.actions.watch import Watch
from zubble_worker.pressure import Window
from zubble_worker.protocols.base import Protocol
from zubble_worker.protocols.making import protocol_of
from zubble_worker.watching import Watching

_DROPPED: Final = "[harness] An older observation was left out to save room."
_SHORT_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Job:
    """A task with its instructions at hand."""

    envelope: TaskEnvelope
    instructions: str
    prompt: str = ""
    """Made of the task's own template, where it has one."""
    protocol: Protocol = field(init=False, compare=False)
    """How the model is talked with."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", protocol_of(self.envelope, self.prompt))

    def opening(self, memory: str = "") -> list[Message]:
        """The prompt before anything has happened; `memory` quotes earlier runs."""
        task = self.envelope.task
        parts = ["TASK", task.description]
        if self.instructions:
            parts += ["", "INSTRUCTIONS", self.instructions]
        if memory:
            parts += ["", memory]
        parts += ["", "SUCCESS CRITERIA", task.success_criteria]
        return [
            Message("system", self.protocol.system_prompt()),
            Message("user", "\n".join(parts)),
        ]


@dataclass(slots=True)
class Transcript:
    """What has happened so far, as the loop and the prompt need it."""

    job: Job
    turns: list[Message] = field(default_factory=list)
    memory: str = ""
    """Earlier runs, as the prompt quotes them."""
    memory_read: tuple[str, ...] | None = None
    """Ids of the runs that are quoted; None while memory was not asked."""
    plan: PlanLedger = field(default_factory=PlanLedger)
    journal: list[JournalEntry] = field(default_factory=list)
    watching: Watching = field(init=False)
    """The action observers, shown all that happened."""
    inquiry: Inquiry = field(init=False)
    """What a person was asked."""
    step: int = 0
    """Iterations begun."""
    warning: str | None = None
    """Divergence of the latest action."""
    last_exit_code: int | None = None
    tokens_saved: int = 0
    premature_stops: int = 0
    resets: int = 0
    """How often the context was cleared."""
    tokens_per_second: float | None = None
    window: Window = field(default_factory=Window)
    """What a prompt comes to in the provider's own count."""
    seconds: dict[str, float] = field(default_factory=dict)
    last_seq: int = 0

    def __post_init__(self) -> None:
        self.watching = Watching(self.job.envelope, Watch(self.job.envelope.guards))
        self.inquiry = Inquiry(self.job.envelope.guards)

    def apply(self, event: Event) -> None:
        """Fold one event in; types without a handler are for the record only."""
        self.last_seq = event.seq
        self.watching.apply(event)
        self.inquiry.apply(event)
        handler = _HANDLERS.get(event.type)
        if handler:
            handler(self, event.data)

    def replay(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def messages(self, left: Left, *, room_tokens: int) -> list[Message] | None:
        """The prompt now, or None when it does not fit into `room_tokens` even without old observations."""
        turns = list(self.turns)
        oldest = 0
        while estimate_prompt_tokens(whole := self._whole(turns, left)) > room_tokens:
            while oldest < len(turns) - 1 and not _droppable(turns[oldest]):
                oldest += 1
            if oldest >= len(turns) - 1:
                return None
            turns[oldest] = Message("user", _DROPPED)
        return whole

    def _whole(self, turns: list[Message], left: Left) -> list[Message]:
        messages = [*self.job.opening(self.memory), *turns]
        last = messages[-1]
        messages[-1] = Message(last.role, f"{last.content}\n\n{self._session_memory(left)}")
        return messages

    def _session_memory(self, left: Left) -> str:
        iterations = self.job.envelope.budget.max_iterations - self.step
        return (
            f"SESSION MEMORY\n{self.plan.render()}\n"
            f"LEFT: {iterations} iterations after this one, {left.tokens} tokens, "
            f"{left.seconds:.0f} seconds, ${left.micro_usd / MICRO:.4f}"
        )

    def _memory_read(self, data: dict[str, Any]) -> None:
        self.memory, self.memory_read = data["text"], tuple(data["read"])

    def _call_started(self, data: dict[str, Any]) -> None:
        self.step = data["step"]
        self.window.started(data)

    def _call_finished(self, data: dict[str, Any]) -> None:
        self._spend_time("model", data["seconds"])
        self.window.finished(data)
        self.tokens_saved += data.get("tokens_saved", 0)
        if data["tokens_per_second"]:
            self.tokens_per_second = data["tokens_per_second"]
        if data["finish"] in {"stop", "length"} and data["view"]:
            self.turns.append(Message("assistant", data["view"]))

    def _format_error(self, data: dict[str, Any]) -> None:
        self._say(self.job.protocol.repair_request(data["reason"]))

    def _action(self, data: dict[str, Any]) -> None:
        kind, steps = data["action"], data.get("revised_plan") or data.get("steps")
        if steps:
            self.plan.plan(steps, cause=data.get("reasoning") or "")
        asked = data.get("command") or data.get("tool")
        self.warning = self.plan.act(data.get("plan_step_id"), f"{kind}: {asked}" if asked else kind)

    def _command_finished(self, data: dict[str, Any]) -> None:
        tool = data.get("tool", "shell")
        self._spend_time("wait" if tool == "wait" else "exec", data["seconds"])
        self.last_exit_code = data["exit_code"]
        if data["exit_code"] != 0:
            entry = data["journal"]
            self.plan.failed(data.get("plan_step_id"), data["command"], _ended(data, entry["result_summary"]))
        elif tool != "wait":  # a wait proves nothing
            self.plan.succeeded(data.get("plan_step_id"), data["command"])
        self.journal.append(JournalEntry.model_validate(data["journal"]))

    def _verify_finished(self, data: dict[str, Any]) -> None:
        self._spend_time("verify", data["seconds"])

    def _parked(self, data: dict[str, Any]) -> None:
        self._spend_time("parked", data["seconds"])

    def _answered(self, data: dict[str, Any]) -> None:
        self._spend_time("awaiting_human", data["seconds"])
        if data["cause"] == "agent" and data["by"] == "human" and (asked := self.inquiry.due):
            self.plan.answered(asked.get("plan_step_id"))

    def _preflight_finished(self, data: dict[str, Any]) -> None:
        self._spend_time("preflight", data["seconds"])

    def _observation(self, data: dict[str, Any]) -> None:
        self._say(data["text"])

    def _view_compacted(self, data: dict[str, Any]) -> None:
        """Old observations are out of the view for good; the last ones, and the record, stay whole."""
        for at, message in enumerate(self.turns[: -data["kept"]]):
            if _droppable(message):
                self.turns[at] = Message("user", _DROPPED)

    def _context_reset(self, data: dict[str, Any]) -> None:
        self.resets += 1
        self.warning = None
        self.turns.clear()
        self._say(data["text"])

    def _premature_stop(self, _data: dict[str, Any]) -> None:
        self.premature_stops += 1

    def _say(self, text: str) -> None:
        if self.turns and self.turns[-1].role == "user":
            text = f"{self.turns.pop().content}\n\n{text}"
        self.turns.append(Message("user", text))

    def _spend_time(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def _ended(data: dict[str, Any], summary: str) -> str:
    how = "timed out" if data["timed_out"] else f"exited {data['exit_code']}"
    return f"{how}: {summary}" if summary and not data["timed_out"] else how


def _droppable(message: Message) -> bool:
    return message.role == "user" and message.content != _DROPPED and len(message.content) > _SHORT_CHARS


_HANDLERS: Final[dict[str, Callable[[Transcript, dict[str, Any]], None]]] = {
    "memory_read": Transcript._memory_read,  # noqa: SLF001
    "call_started": Transcript._call_started,  # noqa: SLF001
    "call_finished": Transcript._call_finished,  # noqa: SLF001
    "format_error": Transcript._format_error,  # noqa: SLF001
    "action": Transcript._action,  # noqa: SLF001
    "command_finished": Transcript._command_finished,  # noqa: SLF001
    "verify_finished": Transcript._verify_finished,  # noqa: SLF001
    "preflight_finished": Transcript._preflight_finished,  # noqa: SLF001
    "parked": Transcript._parked,  # noqa: SLF001
    "answered": Transcript._answered,  # noqa: SLF001
    "observation": Transcript._observation,  # noqa: SLF001
    "restarted": Transcript._observation,  # noqa: SLF001
    "view_compacted": Transcript._view_compacted,  # noqa: SLF001
    "context_reset": Transcript._context_reset,  # noqa: SLF001
    "premature_stop": Transcript._premature_stop,  # noqa: SLF001
}
