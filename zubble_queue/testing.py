"""Shipped doubles, for tests of what is built on zubble-queue.

`Script`, `ScriptedModel` and `MockEndpoint` come from the worker and are imported when they are asked for:
`from zubble_queue.testing import ScriptedModel` needs the extra `worker`, the rest of this module does not.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from zubble_queue.contracts.books import Left
from zubble_queue.contracts.ending import MICRO, Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model import Cut
from zubble_queue.errors import BudgetExceededError, MissingExtra

if TYPE_CHECKING:
    from zubble_queue.contracts.journal import JournalEntry
    from zubble_queue.contracts.model import Channel
    from zubble_queue.contracts.sandbox import Sandbox
    from zubble_queue.contracts.task import LoopBudget

_FROM_THE_WORKER: Final = {
    "Script": "zubble_worker.models.script",
    "ScriptedModel": "zubble_worker.models.scripted",
    "MockEndpoint": "zubble_worker.models.mock_endpoint",
}


@dataclass
class RecordingWatcher:
    """Hears a stream and remembers it; cuts it where it was told to.

    Args:
        cut_after: Cut at this piece, counted from 1; never where it is None.
        reason: What the cut says.
    """

    cut_after: int | None = None
    reason: str = "loop:text"
    pieces: list[tuple[Channel, str]] = field(default_factory=list)

    def feed(self, channel: Channel, text: str) -> Cut | None:
        self.pieces.append((channel, text))
        if self.cut_after is not None and len(self.pieces) >= self.cut_after:
            return Cut(self.reason, {"pieces": len(self.pieces)})
        return None

    def heard(self, channel: Channel) -> str:
        """All of one channel."""
        return "".join(text for heard, text in self.pieces if heard == channel)


class MemoryBooks:
    """The books of one attempt, in memory: for driving the loop without a store.

    It keeps the same rules as the real ones (tests/contract/books); `step_done` only counts.
    """

    def __init__(self, budget: LoopBudget, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock = budget, clock
        self._started = clock()
        self._open: dict[str, tuple[int, int]] = {}
        self._settled: set[str] = set()
        self.usage = Usage()
        self.events: list[Event] = []
        self.entries: list[JournalEntry] = []
        self.steps_done = 0

    def now(self) -> float:
        return time.time()

    def left(self) -> Left:
        tokens = sum(tokens for tokens, _ in self._open.values())
        micro_usd = sum(money for _, money in self._open.values())
        ceiling = round(self._budget.max_spend_usd * MICRO)
        return Left(
            tokens=max(self._budget.max_tokens - self.usage.tokens - tokens, 0),
            micro_usd=max(ceiling - self.usage.spend_micro_usd - micro_usd, 0),
            seconds=max(self._budget.max_wallclock_seconds - (self._clock() - self._started), 0.0),
        )

    async def record(self, type_: str, /, **data: Any) -> Event:
        event = Event(seq=len(self.events) + 1, time=self.now(), attempt=1, type=type_, data=data)
        self.events.append(event)
        return event

    async def reserve(
        self,
        call_id: str,
        *,
        tokens: int,
        micro_usd: int,
        least_micro_usd: int | None = None,  # noqa: ARG002  # there is no ceiling above the task's here
    ) -> int:
        left = self.left()
        if tokens > left.tokens:
            raise BudgetExceededError("tokens", f"max_tokens={self._budget.max_tokens} exceeded")
        if micro_usd > left.micro_usd:
            raise BudgetExceededError("spend", f"max_spend_usd={self._budget.max_spend_usd} exceeded")
        self._open[call_id] = (tokens, micro_usd)
        return micro_usd

    async def settle(self, call_id: str, usage: Usage) -> None:
        if call_id not in self._settled:
            self._settled.add(call_id)
            self._open.pop(call_id, None)
            self.usage = self.usage.plus(usage)

    async def parked(self) -> float:
        return 0.0

    async def journal(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    async def step_done(self, sandbox: Sandbox) -> None:  # noqa: ARG002
        self.steps_done += 1

    def of_type(self, type_: str) -> list[dict[str, Any]]:
        """The data of all events of a type, in order."""
        return [event.data for event in self.events if event.type == type_]


def structured_reply(action: Literal["plan", "run", "tool", "report", "submit", "ask"], **fields: Any) -> str:
    """One turn of the structured protocol (Z8), as in `structured_reply("run", command="ls")`."""
    return json.dumps({"action": action, **fields}, ensure_ascii=False)


def __getattr__(name: str) -> Any:
    if name not in _FROM_THE_WORKER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_FROM_THE_WORKER[name]), name)
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{name} (it needs {missing.name})", "worker") from missing
