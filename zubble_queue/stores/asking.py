"""Questions in the store: a task asks, waits as `awaiting_human`, and goes on when it is answered."""

from __future__ import annotations

from zubble_queue.contracts.question import Answer, Asked, Question
from zubble_queue.contracts.record import Lease
from zubble_queue.errors import BadInput, LeaseLost, UnknownName
from zubble_queue.stores.connection import micro
from zubble_queue.stores.reading import Reading

_CHUNK = 200
"""Questions that lapse per script call."""
_REFUSALS = {
    "sealed": "Task {id} is sealed; it asks nothing.",
    "answered": "The question of task {id} was answered before.",
    "not asking": "Task {id} does not wait for a person.",
    "question": "Task {id} asks a question: zubble task answer {id} TEXT.",
    "approval": "Task {id} waits for an approval: zubble task approve {id}, or zubble task deny {id}.",
}


class Asking(Reading):
    """A question is asked by whoever holds the lease, and answered once, by anybody."""

    async def ask(self, lease: Lease, question: Question, deadline_seconds: float) -> None:
        """Have the task wait for a person. The lease is kept; once released, the task waits without a worker.

        Waiting is not charged to the task's wall clock (C50).

        Raises:
            LeaseLost: Another attempt owns the task.
        """
        kept = await self._run(
            "ask",
            lease.task_id,
            lease.token,
            question.question_id,
            question.kind,
            question.model_dump_json(exclude={"unanswered"}),
            question.unanswered.model_dump_json(),
            micro(deadline_seconds),
        )
        if not kept:
            raise LeaseLost(f"Attempt {lease.epoch} no longer owns task {lease.task_id}.")

    async def asked(self, task_id: str) -> Asked | None:
        """The task's latest question in this round, answered or not. Raises UnknownName."""
        return (await self.task(task_id)).asked

    async def answer(self, task_id: str, answer: Answer, *, question_id: str = "") -> None:
        """Answer the open question of a task; the task goes on.

        Args:
            task_id: Which.
            answer: Of the kind that was asked for.
            question_id: Answer this question and no later one; by default the open one.

        Raises:
            UnknownName: There is no such task.
            BadInput: It does not wait for a person, was answered before, or waits for another kind.
        """
        said = await self._run("answer", task_id, question_id, answer.kind, answer.model_dump_json())
        if said == "unknown":
            raise UnknownName("task", task_id, ())
        if said != "given":
            raise BadInput([_REFUSALS[said].format(id=task_id)])

    async def lapse(self) -> int:
        """Answer the questions whose deadline has passed as they say; returns how many."""
        count, seen = 0, _CHUNK
        while seen == _CHUNK:
            seen = int(await self._run("lapse", _CHUNK))
            count += seen
        return count
