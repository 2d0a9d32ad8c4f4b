"""The dispatcher's side of the store: batches and their tasks come into being."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import BatchInfo, Submitted
from zubble_queue.errors import BadInput
from zubble_queue.stores import codec
from zubble_queue.stores.codec import Letter
from zubble_queue.stores.reading import PAGE, Reading

ENVELOPE_BYTES: Final = 65_536
"""The most an envelope may take in Redis; some three hundred file entries."""

Standing = Literal["new", "existing", "conflict"]
_STANDINGS: Final[Mapping[str, Standing]] = {"n": "new", "e": "existing", "c": "conflict"}
_UTF8_BYTES: Final = 4
"""The most that a character takes."""


class Submitting(Reading):
    """Creating is idempotent: what is there already stays as it is."""

    async def create_batch(self, info: BatchInfo) -> bool:
        """Make an empty batch in state `loading`; False if it was there, whatever its info."""
        await self._refuse_when_full()
        ceiling = "" if info.max_spend_usd is None else codec.micro_usd(info.max_spend_usd)
        tuning = info.tuning
        arguments = (
            info.name,
            info.model_dump_json(),
            info.tenant,
            ceiling,
            info.on_ceiling,
            tuning.max_retries,
            repr(tuning.weight),
            tuning.priority,
            tuning.concurrency,
        )
        return bool(await self._run("create_batch", *arguments))

    async def compare(self, batch: str, hashes: Mapping[str, str]) -> dict[str, Standing]:
        """How tasks (id to content hash) stand to what is stored; nothing is written."""
        pairs = list(hashes.items())
        standing: dict[str, Standing] = {}
        for at in range(0, len(pairs), PAGE):
            page = pairs[at : at + PAGE]
            found = await self._run("compare", batch, " ".join(f"{id_} {hash_}" for id_, hash_ in page))
            standing.update((id_, _STANDINGS[mark]) for (id_, _), mark in zip(page, found, strict=True))
        return standing

    async def add_tasks(self, batch: str, envelopes: Sequence[TaskEnvelope]) -> Submitted:
        """`add_letters`, of envelopes."""
        return await self.add_letters(batch, [Letter.of(envelope) for envelope in envelopes])

    async def add_letters(self, batch: str, letters: Sequence[Letter]) -> Submitted:
        """Create those that are not there, each with its `accepted` event; PAGE tasks are one script call.

        Raises:
            UnknownName: There is no such batch.
            BadInput: The batch is cancelled, or an envelope is over ENVELOPE_BYTES; nothing was created.
        """
        if problems := [problem for letter in letters if (problem := oversize(letter))]:
            raise BadInput(problems)
        done = Submitted(created=0, existing=0)
        for at in range(0, len(letters), PAGE):
            await self._refuse_when_full()
            done = _sum(done, await self._add_page(batch, letters[at : at + PAGE]))
        return done

    async def open_batch(self, batch: str) -> None:
        """All tasks are there. Raises UnknownName."""
        if not await self._run("open_batch", batch):
            raise await self._unknown_batch(batch)

    async def _add_page(self, batch: str, letters: Sequence[Letter]) -> Submitted:
        values = [value for letter in letters for value in codec.task_arguments(letter)]
        answer = await self._run("add_tasks", batch, *values)
        if answer[0] == "unknown":
            raise await self._unknown_batch(batch)
        if answer[0] == "cancelled":
            raise BadInput([f"Batch {batch!r} is cancelled; submit under another name."])
        return Submitted(created=answer[1], existing=answer[2], conflicts=tuple(answer[3]))


def oversize(letter: Letter) -> str | None:
    """The problem with an envelope that is too long to be kept in Redis."""
    if len(letter.text) <= ENVELOPE_BYTES // _UTF8_BYTES:
        return None
    size = len(letter.text.encode())
    if size <= ENVELOPE_BYTES:
        return None
    return f"{letter.envelope.source_id!r}: its envelope has {size:,} bytes; {ENVELOPE_BYTES:,} is the most."


def _sum(one: Submitted, two: Submitted) -> Submitted:
    return Submitted(
        created=one.created + two.created,
        existing=one.existing + two.existing,
        conflicts=one.conflicts + two.conflicts,
    )
