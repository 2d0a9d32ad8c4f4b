"""What is known of one attempt while it runs; the parts of the attempt share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zubble_queue.contracts.books import Listener
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import Claim
from zubble_worker.books import AttemptBooks
from zubble_worker.contact import Gate, patiently
from zubble_worker.tools import Tools
from zubble_worker.transcript import Job, Transcript
from zubble_worker.workplace import Workplace


@dataclass(slots=True)
class Case:
    """A claim, and how far the work on it has come."""

    claim: Claim
    tools: Tools
    listeners: Sequence[Listener] = ()
    """Told what comes on its books."""
    gate: Gate = field(init=False)
    books: AttemptBooks = field(init=False)
    transcript: Transcript = field(init=False)
    """Without the instructions until they were read."""
    place: Workplace | None = field(init=False, default=None)
    """None before a sandbox was opened."""

    def __post_init__(self) -> None:
        tools = self.tools
        self.gate = Gate()
        self.books = AttemptBooks(
            self.claim,
            tools.store,
            tools.artifacts,
            gate=self.gate,
            bell=tools.bell,
            listeners=self.listeners,
        )
        self.transcript = Transcript(Job(self.envelope, ""))

    @property
    def envelope(self) -> TaskEnvelope:
        return self.claim.envelope

    async def record(self, type_: str, /, **data: Any) -> None:
        """Append an event, and let the transcript follow it."""
        self.transcript.apply(await self.books.record(type_, **data))

    async def trials(self) -> list[JournalEntry]:
        """What was tried in the task, oldest first."""
        return await patiently(lambda: self.tools.store.journal(self.envelope.task_id))
