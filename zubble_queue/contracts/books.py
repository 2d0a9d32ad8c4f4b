"""What the loop asks of the books: record what happened, reserve before a call, settle after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Left:
    """What the budget still allows; nothing in it is negative."""

    tokens: int
    micro_usd: int
    seconds: float


class Books(Protocol):
    """One attempt's view of the store. Every write raises LeaseLost once another attempt owns the task."""

    def left(self) -> Left:
        """What is neither settled nor reserved, now."""

    async def record(self, type_: str, /, **data: Any) -> Event:
        """Append one event; long strings in it go to the artifact store and travel as references."""

    async def reserve(self, call_id: str, *, tokens: int, micro_usd: int) -> None:
        """Before a call. Raises BudgetExceededError(limit `tokens` or `spend`)."""

    async def settle(self, call_id: str, usage: Usage) -> None:
        """After a call, whatever became of it; idempotent by call_id."""

    async def journal(self, entry: JournalEntry) -> None:
        """Keep one trial."""

    async def step_done(self, sandbox: Sandbox) -> None:
        """A step is complete: where the work tree changed, make the next attempt able to go on from here."""

    def now(self) -> float:
        """Seconds since the epoch."""
