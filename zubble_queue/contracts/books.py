"""What the loop asks of the books: record what happened, reserve before a call, settle after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry


@dataclass(frozen=True, slots=True)
class Left:
    """What the budget still allows; nothing in it is negative."""

    tokens: int
    micro_usd: int
    seconds: float


class Books(Protocol):
    """One attempt's view of the store. Every write raises LeaseLost once the attempt is no longer the owner."""

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

    async def checkpoint(self, snapshot: bytes) -> None:
        """Make the next attempt able to go on after the last recorded event."""
