"""The dispatcher's side of the store: batches and their tasks come into being."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import BatchInfo, Submitted
from zubble_queue.errors import BadInput
from zubble_queue.stores import codec
from zubble_queue.stores.reading import PAGE, Reading

ENVELOPE_BYTES: Final = 65_536
"""The most an envelope may take in Redis; some three hundred file entries."""

Standing = Literal["new", "existing", "conflict"]


class Submitting(Reading):
    """Creating is idempotent: what is there already stays as it is."""

    async def create_batch(self, info: BatchInfo) -> bool:
        """Make an empty batch in state `loading`; False if it was there, whatever its info."""
        await self._refuse_when_full()
        ceiling = "" if info.max_spend_usd is None else codec.micro_usd(info.max_spend_usd)
        tuning = (repr(info.tuning.weight), info.tuning.priority, info.tuning.concurrency)
        arguments = (
            info.name,
            info.model_dump_json(),
            info.tenant,
            ceiling,
            info.on_ceiling,
            info.max_retries,
        )
        return bool(await self._run("create_batch", *arguments, *tuning))

    async def compare(self, batch: str, hashes: Mapping[str, str]) -> dict[str, Standing]:
        """How tasks (id to content hash) stand to what is stored; nothing is written."""
        ids = list(hashes)
        standing: dict[str, Standing] = {}
        for at in range(0, len(ids), PAGE):
            page = ids[at : at + PAGE]
            stored = await self._pipe([("HMGET", self._keys.task(id_), "batch", "hash") for id_ in page])
            for id_, found in zip(page, stored, strict=True):
                standing[id_] = _standing(found, [batch, hashes[id_]])
        return standing

    async def add_tasks(self, batch: str, envelopes: Sequence[TaskEnvelope]) -> Submitted:
        """Create those that are not there, each with its `accepted` event; PAGE tasks are one script call.

        Raises:
            UnknownName: There is no such batch.
            BadInput: The batch is cancelled, or an envelope is over ENVELOPE_BYTES; nothing was created.
        """
        if problems := [problem for envelope in envelopes if (problem := oversize(envelope))]:
            raise BadInput(problems)
        done = Submitted(created=0, existing=0)
        for at in range(0, len(envelopes), PAGE):
            await self._refuse_when_full()
            done = _sum(done, await self._add_page(batch, envelopes[at : at + PAGE]))
        return done

    async def open_batch(self, batch: str) -> None:
        """All tasks are there. Raises UnknownName."""
        if not await self._run("open_batch", batch):
            raise await self._unknown_batch(batch)

    async def _add_page(self, batch: str, envelopes: Sequence[TaskEnvelope]) -> Submitted:
        values = [value for envelope in envelopes for value in codec.task_arguments(envelope)]
        answer = await self._run("add_tasks", batch, *values)
        if answer[0] == "unknown":
            raise await self._unknown_batch(batch)
        if answer[0] == "cancelled":
            raise BadInput([f"Batch {batch!r} is cancelled; submit under another name."])
        return Submitted(created=answer[1], existing=answer[2], conflicts=tuple(answer[3]))


def oversize(envelope: TaskEnvelope) -> str | None:
    """The problem with an envelope that is too long to be kept in Redis."""
    size = len(envelope.model_dump_json().encode())
    if size <= ENVELOPE_BYTES:
        return None
    return f"{envelope.source_id!r}: its envelope has {size:,} bytes; {ENVELOPE_BYTES:,} is the most."


def _standing(stored: list[str | None], wanted: list[str]) -> Standing:
    if stored[1] is None:
        return "new"
    return "existing" if stored == wanted else "conflict"


def _sum(one: Submitted, two: Submitted) -> Submitted:
    return Submitted(
        created=one.created + two.created,
        existing=one.existing + two.existing,
        conflicts=one.conflicts + two.conflicts,
    )
