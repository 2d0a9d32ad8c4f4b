"""The dispatcher: takes a submission whole or not at all, and creates only what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from zubble_queue.artifacts import ArtifactStore, reference
from zubble_queue.contracts.envelope import BlobRef, TaskEnvelope
from zubble_queue.contracts.submission import Parcel, Submission, SubmitReport
from zubble_queue.errors import BadInput, CannotStart, InfraError, UnknownName
from zubble_queue.stores.redis import RedisStore
from zubble_queue.stores.submitting import oversize

CHUNK: Final = 500
"""Tasks created at a time."""
_BLOBS_AT_A_TIME: Final = 32
PROBLEMS_SHOWN: Final = 20

Progress = Callable[[int, int], None]
"""Called with the steps done and the steps in all; a step is a piece of content kept or a task created."""


class Dispatcher:
    """Submits batches."""

    def __init__(self, store: RedisStore, artifacts: ArtifactStore) -> None:
        self._store, self._artifacts = store, artifacts

    async def submit(
        self, submission: Submission, *, dry_run: bool = False, progress: Progress | None = None
    ) -> SubmitReport:
        """Check everything, then store the content, then create the tasks that are not there.

        Submitting the same again creates nothing; a submission that was interrupted is completed.

        Args:
            submission: The batch and its tasks.
            dry_run: Check and count, and write nothing.
            progress: Told how far it is, many times.

        Raises:
            BadInput: Every problem found, one sentence each; nothing was written.
            CannotStart: The artifacts cannot be kept.
            StoreUnavailable: Redis does not answer or is full; submitting again goes on from there.
        """
        name = submission.batch.name
        envelopes = [parcel.envelope for parcel in submission.parcels]
        _raise(list(_problems(submission)))
        new = await self._new_ones(name, envelopes)
        await self._check_content([parcel for parcel in submission.parcels if parcel.envelope.task_id in new])
        if not dry_run:
            await self._store_content(submission.parcels, new)
            await self._store.create_batch(submission.batch)
            await self._create(
                name, [envelope for envelope in envelopes if envelope.task_id in new], progress
            )
            await self._store.open_batch(name)
        return SubmitReport(
            batch=name,
            total=len(envelopes),
            created=len(new),
            existing=len(envelopes) - len(new),
            budget_usd=sum(
                envelope.budget.max_spend_usd for envelope in envelopes if envelope.task_id in new
            ),
            dry_run=dry_run,
        )

    async def _new_ones(self, name: str, envelopes: Sequence[TaskEnvelope]) -> frozenset[str]:
        """Ids of the tasks that are not there. Raises BadInput for a cancelled batch and for conflicts."""
        if await self._is_cancelled(name):
            raise BadInput([f"Batch {name!r} is cancelled; submit under another name."])
        hashes = {envelope.task_id: envelope.content_hash() for envelope in envelopes}
        standing = await self._store.compare(name, hashes)
        _raise([_conflict(name, e) for e in envelopes if standing[e.task_id] == "conflict"])
        return frozenset(task_id for task_id, how in standing.items() if how == "new")

    async def _is_cancelled(self, name: str) -> bool:
        try:
            return (await self._store.batch(name)).state == "cancelled"
        except UnknownName:
            return False

    async def _check_content(self, parcels: Sequence[Parcel]) -> None:
        """Every reference must come with its content, or be there. Raises BadInput."""
        problems = []
        for parcel in parcels:
            for ref in _references(parcel.envelope):
                if ref not in parcel.blobs and not await self._has(ref):
                    problems.append(f"{parcel.envelope.source_id!r}: the content of {ref} is missing.")
        _raise(problems)

    async def _has(self, ref: str) -> bool:
        try:
            return await self._artifacts.ahas(ref)
        except InfraError as failed:
            raise CannotStart(str(failed)) from failed

    async def _store_content(self, parcels: Sequence[Parcel], new: frozenset[str]) -> None:
        blobs: dict[str, bytes] = {}
        for parcel in parcels:
            if parcel.envelope.task_id in new:
                blobs.update(parcel.blobs)
        try:
            for data in blobs.values():
                await self._artifacts.aput(data)
        except InfraError as failed:
            raise CannotStart(str(failed)) from failed

    async def _create(self, name: str, envelopes: Sequence[TaskEnvelope], progress: Progress | None) -> None:
        for at in range(0, len(envelopes), CHUNK):
            page = envelopes[at : at + CHUNK]
            added = await self._store.add_tasks(name, page)
            by_source = {envelope.source_id: envelope for envelope in page}
            _raise([_conflict(name, by_source[source]) for source in added.conflicts])
            if progress:
                progress(at + len(page), len(envelopes))


def _problems(submission: Submission) -> Iterator[str]:
    """What is wrong with a submission by itself."""
    name, parcels = submission.batch.name, submission.parcels
    if not parcels:
        yield f"Batch {name!r} has no tasks."
    times = Counter((parcel.envelope.source_id, parcel.envelope.repeat) for parcel in parcels)
    for (source_id, repeat), count in times.items():
        if count > 1:
            yield f"{source_id!r}{_repeat(repeat)} is there {count} times; ids must differ."
    for parcel in parcels:
        yield from _parcel_problems(name, parcel)


def _parcel_problems(batch: str, parcel: Parcel) -> Iterator[str]:
    envelope = parcel.envelope
    if envelope.batch != batch:
        yield f"{envelope.source_id!r} belongs to batch {envelope.batch!r}, not {batch!r}."
    if problem := oversize(envelope):
        yield problem
    for ref, data in parcel.blobs.items():
        if reference(data) != ref:
            yield f"{envelope.source_id!r}: the content given for {ref} has another digest."


def _references(envelope: TaskEnvelope) -> Iterator[str]:
    if isinstance(envelope.instructions, BlobRef):
        yield envelope.instructions.ref
    for entry in (*envelope.files, *envelope.verify.files):
        yield entry.blob.ref


def _conflict(batch: str, envelope: TaskEnvelope) -> str:
    return (
        f"{envelope.source_id!r}{_repeat(envelope.repeat)} is in batch {batch!r} with other content or settings; "
        "submit it under another batch name."
    )


def _repeat(repeat: int) -> str:
    return f" (repeat {repeat})" if repeat > 1 else ""


def _raise(problems: Sequence[str]) -> None:
    """Raises BadInput with the first of many problems and how many there are in all."""
    if len(problems) > PROBLEMS_SHOWN:
        rest = len(problems) - PROBLEMS_SHOWN
        problems = [*problems[:PROBLEMS_SHOWN], f"… and {rest} more of {len(problems)} problems."]
    if problems:
        raise BadInput(problems)
