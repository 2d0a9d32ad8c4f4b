"""The operator's side of the store: what becomes of a batch after it was submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zubble_queue.contracts.question import Question
from zubble_queue.contracts.record import Checkpoint, PastRound
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.errors import BadInput, UnknownName
from zubble_queue.stores import codec
from zubble_queue.stores.reading import PAGE, Reading

MOST_ROUNDS: Final = 20
"""How often a task may be begun, the first time included; every seal is kept."""


class Operating(Reading):
    """Every method raises UnknownName for a batch or task that is not there, and then has changed nothing."""

    async def cancel_batch(self, name: str) -> int:
        """Seal what waits and tell what runs; from the first moment on nothing of it is fed or claimed.

        Returns:
            How many tasks were sealed or told to stop by this call.
        """
        await self._on_batch("cancel_batch", name)
        count, after = 0, "0"
        while page := await self._members(name, after):
            count += await self._run("cancel", *(task_id for task_id, _ in page))
            after = page[-1][1]
        return count

    async def cancel_task(self, task_id: str) -> bool:
        """Seal it if it waits, tell it to stop if it runs; False if there was nothing to do."""
        if not await self._do("EXISTS", self._keys.task(task_id)):
            raise UnknownName("task", task_id, ())
        return bool(await self._run("cancel", task_id))

    async def pause_batch(self, name: str) -> None:
        """Begin nothing more of it until it is resumed; what runs goes on to its end."""
        await self._on_batch("pause_batch", name)

    async def resume_batch(self, name: str) -> None:
        """Let it be fed again."""
        await self._on_batch("resume_batch", name)

    async def tune_batch(
        self,
        name: str,
        *,
        weight: float | None = None,
        priority: int | None = None,
        concurrency: int | None = None,
        max_retries: int | None = None,
    ) -> Tuning:
        """Change what is given, from now on; returns all of it. Raises ValidationError for a bad value."""
        given = {
            "weight": weight,
            "priority": priority,
            "concurrency": concurrency,
            "max_retries": max_retries,
        }
        changes = {field: value for field, value in given.items() if value is not None}
        before = (await self.batch(name)).tuning
        tuning = Tuning.model_validate({**before.model_dump(), **changes})
        await self._on_batch(
            "tune_batch", name, *(part for field, value in changes.items() for part in (field, str(value)))
        )
        return tuning

    async def retry_tasks(self, batch: str, task_ids: Sequence[str]) -> int:
        """Begin a new round of sealed tasks; returns how many. Their seals stay in the history.

        A cancelled batch is open again after it.

        Raises:
            BadInput: A task was not sealed any more when its turn came, or has had MOST_ROUNDS; it was left
                as it is, and the others were begun.
        """
        await self._refuse_when_full()
        begun, problems = 0, []
        for at in range(0, len(task_ids), PAGE):
            answer = await self._run("retry", batch, MOST_ROUNDS, *task_ids[at : at + PAGE])
            begun += answer[0]
            problems += [f"Task {id_} is not sealed; only a sealed task can be retried." for id_ in answer[1]]
            problems += [f"Task {id_} has had {MOST_ROUNDS} rounds; that is the most." for id_ in answer[2]]
        if problems:
            raise BadInput(problems)
        return begun

    async def clear(self, task_id: str, checkpoint: Checkpoint, question: Question) -> None:
        """Have a task that ended as blocked go on in a new round, in what is left of its budget.

        Args:
            task_id: Which.
            checkpoint: Its end: event log and work tree.
            question: Whether the guard it met may be cleared, with a yes as `unanswered`.

        Raises:
            UnknownName: There is no such task.
            BadInput: It did not end as blocked, or has had MOST_ROUNDS.
        """
        await self._refuse_when_full()
        text, answer = question.model_dump_json(exclude={"unanswered"}), question.unanswered.model_dump_json()
        asked = (question.question_id, question.kind, text, answer)
        said = await self._run("clear", task_id, MOST_ROUNDS, checkpoint.model_dump_json(), *asked)
        if said == "unknown":
            raise UnknownName("task", task_id, ())
        if said == "not blocked":
            raise BadInput([f"Task {task_id} did not end as blocked."])
        if said == "spent":
            raise BadInput([f"Task {task_id} has had {MOST_ROUNDS} rounds; that is the most."])

    async def rounds(self, task_id: str) -> list[PastRound]:
        """How the earlier rounds of a task ended, oldest first."""
        entries = await self._do("LRANGE", self._keys.task(task_id, "rounds"), 0, -1)
        return [codec.past_round(entry) for entry in entries]

    async def remove_batch(self, name: str) -> int:
        """Forget a batch and its tasks, all of which must be sealed; returns how many tasks there were.

        Artifacts stay: other batches may use the same content.

        Raises:
            BadInput: Some are not sealed; nothing was removed.
        """
        count = 0
        while page := await self._members(name, "0"):
            await self._remove(name, *(task_id for task_id, _ in page))
            count += len(page)
        await self._remove(name)
        return count

    async def _remove(self, name: str, *task_ids: str) -> None:
        answer = await self._run("remove", name, *task_ids)
        if answer == 0:
            raise await self._unknown_batch(name)
        if answer < 0:
            view = await self.batch(name)
            left = view.total - view.sealed
            raise BadInput([f"{left} tasks of batch {name!r} are not sealed; cancel it first."])

    async def _on_batch(self, script: str, name: str, *arguments: str | int) -> None:
        if not await self._run(script, name, *arguments):
            raise await self._unknown_batch(name)
