"""A person behind the store: the task waits as `awaiting_human` until somebody answers."""

from __future__ import annotations

import asyncio
from typing import Final

from zubble_queue.contracts.question import Asked, Question
from zubble_queue.errors import AwaitingHuman
from zubble_worker.case import Case
from zubble_worker.contact import patiently
from zubble_worker.exits import Exits

_LOOK_SECONDS: Final = 0.5


class DistantHuman:
    """Implements contracts.question.Human for one attempt.

    Slot and sandbox are kept for the answer as long as the task says; then AwaitingHuman is raised, and the
    attempt gives its lease up. What it was about was checkpointed before it asked.
    """

    def __init__(self, case: Case, exits: Exits) -> None:
        self._case, self._exits = case, exits

    async def answer(self, question: Question) -> Asked:
        store, lease, request = self._case.tools.store, self._case.claim.lease, self._case.envelope.ask
        await self._exits.keep_edits()
        await patiently(lambda: store.ask(lease, question, request.deadline_seconds))
        if request.keep_seconds:
            await self._go_on()
        with self._case.books.awaiting.waiting():
            asked = await self._kept(question.question_id, request.keep_seconds)
        if asked is None:
            raise AwaitingHuman(question.text)
        return asked

    async def _go_on(self) -> None:
        """What the agent left running stood still for the snapshot only."""
        if self._case.place and self._case.gate.is_open:
            await self._case.place.sandbox.thaw()

    async def _kept(self, question_id: str, keep_seconds: float) -> Asked | None:
        """The answer, if it comes while slot and sandbox are kept."""
        store, lease, clock = self._case.tools.store, self._case.claim.lease, asyncio.get_running_loop().time
        latest = clock() + keep_seconds
        while (left := latest - clock()) > 0:
            await asyncio.sleep(min(_LOOK_SECONDS, left))
            asked = await patiently(lambda: store.asked(lease.task_id))
            if asked and asked.question.question_id == question_id and asked.answer:
                return asked
            if asked and asked.answer_by < self._case.books.now():
                await patiently(store.lapse)
        return None
