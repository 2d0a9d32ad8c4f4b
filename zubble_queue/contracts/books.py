"""What the loop asks of the books: record what happened, reserve before a call, settle after it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, Self

from zubble_queue.contracts.ending import MICRO, Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.contracts.task import LoopBudget


@dataclass(frozen=True, slots=True)
class Left:
    """What the budget still allows; nothing in it is negative."""

    tokens: int
    micro_usd: int
    seconds: float

    @classmethod
    def of(
        cls, budget: LoopBudget, usage: Usage, reserved: Collection[tuple[int, int]], seconds_used: float
    ) -> Self:
        """What `usage` and the open calls' reservations, each (tokens, micro-USD), leave of the budget."""
        ceiling = round(budget.max_spend_usd * MICRO)
        return cls(
            tokens=max(budget.max_tokens - usage.tokens - sum(tokens for tokens, _ in reserved), 0),
            micro_usd=max(ceiling - usage.spend_micro_usd - sum(money for _, money in reserved), 0),
            seconds=max(budget.max_wallclock_seconds - seconds_used, 0.0),
        )


class Listener(Protocol):
    """Told what came on the books of one attempt; it raises nothing and waits for nobody."""

    def happened(self, event: Event) -> None:
        """An event was written."""

    def settled(self, usage: Usage) -> None:
        """A call was paid."""


class Books(Protocol):
    """One attempt's view of the store. Every write raises LeaseLost once another attempt owns the task."""

    def left(self) -> Left:
        """What is neither settled nor reserved, now."""

    async def record(self, type_: str, /, **data: Any) -> Event:
        """Append one event; long strings in it go to the artifact store and travel as references."""

    async def reserve(
        self, call_id: str, *, tokens: int, micro_usd: int, least_micro_usd: int | None = None
    ) -> int:
        """Before a call: put the most it can cost on the books of the task, its batch and its tenant.

        Args:
            call_id: Unique within the attempt.
            tokens: The most it can use.
            micro_usd: The most it can cost.
            least_micro_usd: What the smallest useful call costs; by default as much as this one.

        Returns:
            The micro-USD that were reserved: near a ceiling less than asked for, never less than the least.

        Raises:
            BudgetExceededError: Limit `tokens`, `spend`, `batch_spend` or `tenant_spend`.
            CeilingReached: Batch or tenant may spend no more for now.
            ParkedTooLong: Other calls' reservations left no room for an hour.
        """

    async def settle(self, call_id: str, usage: Usage) -> None:
        """After a call, whatever became of it; idempotent by call_id."""

    async def parked(self) -> float:
        """Seconds the attempt waited for others since last asked; they are off the task's wall clock."""

    async def journal(self, entry: JournalEntry) -> None:
        """Keep one trial."""

    async def step_done(self, sandbox: Sandbox) -> None:
        """A step is complete: where the work tree changed, make the next attempt able to go on from here."""

    def now(self) -> float:
        """Seconds since the epoch."""
