"""Books in memory: budget, events and journal of a run that belongs to no queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zubble_queue.contracts.books import Left
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import BudgetExceededError


class MemoryBooks:
    """The books of one attempt in this process: for a run that no store knows of.

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
        return Left.of(self._budget, self.usage, self._open.values(), self._clock() - self._started)

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
