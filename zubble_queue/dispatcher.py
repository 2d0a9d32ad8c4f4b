"""The dispatcher: takes a submission whole or not at all, and creates only what is new."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from zubble_queue.artifacts import ArtifactStore, reference
from zubble_queue.contracts.envelope import BlobRef, TaskEnvelope
from zubble_queue.contracts.submission import Parcel, Submission, SubmitReport
from zubble_queue.errors import BadInput, CannotStart, InfraError, UnknownName
from zubble_queue.stores.codec import Letter, micro_usd
from zubble_queue.stores.redis import RedisStore
from zubble_queue.stores.submitting import oversize

CHUNK: Final = 500
"""Tasks created at a time."""
PROBLEMS_SHOWN: Final = 20
_BLOBS_AT_A_TIME: Final = 256
_BLOBS_A_THREAD: Final = 64

Progress = Callable[[int, int], None]
"""Called with the steps done and the steps in all; a step is a piece of content kept or a task created."""


class Dispatcher:
    """Submits batches."""

    def __init__(self, store: RedisStore, artifacts: ArtifactStore) -> None:
        self._store, self._artifacts = store, artifacts

    async def submit(
        self, submission: Submission, *, dry_run: bool = False, progress: Progress | None = None
    ) -> SubmitReport:
        """Check everything, then keep the content, then create the tasks that are not there.

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
        letters = [Letter.of(parcel.envelope) for parcel in submission.parcels]
        _raise(list(_problems(submission, letters)))
        new, new_letters = await self._new_ones(submission, letters)
        await self._check_content(new)
        if dry_run:
            created = len(new)
        else:
            created = await self._create(submission, new, new_letters, progress)
        return SubmitReport(
            batch=submission.batch.name,
            total=len(submission.parcels),
            created=created,
            existing=len(submission.parcels) - created,
            budget_usd=sum(parcel.envelope.budget.max_spend_usd for parcel in new),
            dry_run=dry_run,
        )

    async def _new_ones(
        self, submission: Submission, letters: Sequence[Letter]
    ) -> tuple[list[Parcel], list[Letter]]:
        """The tasks that are not there. Raises BadInput for a cancelled batch and for conflicts."""
        name, parcels = submission.batch.name, submission.parcels
        standing = await self._store.compare(
            name, {letter.envelope.task_id: letter.content_hash for letter in letters}
        )
        envelopes = [parcel.envelope for parcel in parcels]
        _raise([_conflict(name, found) for found in envelopes if standing[found.task_id] == "conflict"])
        new = [at for at, envelope in enumerate(envelopes) if standing[envelope.task_id] == "new"]
        if new and await self._is_cancelled(name):
            raise BadInput([f"Batch {name!r} is cancelled; submit new tasks under another name."])
        return [parcels[at] for at in new], [letters[at] for at in new]

    async def _is_cancelled(self, name: str) -> bool:
        try:
            return (await self._store.batch(name)).state == "cancelled"
        except UnknownName:
            return False

    async def _check_content(self, parcels: Sequence[Parcel]) -> None:
        """Every reference must come with its content, or be there. Raises BadInput."""
        problems = [
            f"{parcel.envelope.source_id!r}: the content of {ref} is missing."
            for parcel in parcels
            for ref in _references(parcel.envelope)
            if ref not in parcel.blobs and not await self._has(ref)
        ]
        _raise(problems)

    async def _has(self, ref: str) -> bool:
        try:
            return await self._artifacts.ahas(ref)
        except InfraError as failed:
            raise CannotStart(str(failed)) from failed

    async def _create(
        self,
        submission: Submission,
        parcels: Sequence[Parcel],
        letters: Sequence[Letter],
        progress: Progress | None,
    ) -> int:
        batch = submission.batch
        blobs = {ref: data for parcel in parcels for ref, data in parcel.blobs.items()}
        steps = _Steps(len(blobs) + len(parcels), progress)
        await self._keep(list(blobs.values()), steps)
        if not await self._store.create_batch(batch):
            await self._change(submission)
        created = 0
        for at in range(0, len(letters), CHUNK):
            page = letters[at : at + CHUNK]
            created += await self._add(batch.name, page)
            steps.done(len(page))
        await self._store.open_batch(batch.name)
        return created

    async def _change(self, submission: Submission) -> None:
        """What was said about a batch that is there already counts from now on; the rest stays as it is."""
        batch = submission.batch
        if batch.max_spend_usd is not None:
            ceiling = micro_usd(batch.max_spend_usd)
            await self._store.set_ceiling("batch", batch.name, ceiling, batch.on_ceiling)
        if submission.tuned:
            await self._store.tune_batch(batch.name, **submission.tuned)

    async def _keep(self, blobs: Sequence[bytes], steps: _Steps) -> None:
        try:
            for at in range(0, len(blobs), _BLOBS_AT_A_TIME):
                page = blobs[at : at + _BLOBS_AT_A_TIME]
                parts = [page[i : i + _BLOBS_A_THREAD] for i in range(0, len(page), _BLOBS_A_THREAD)]
                await asyncio.gather(*(self._artifacts.aput_all(part) for part in parts))
                steps.done(len(page))
        except InfraError as failed:
            raise CannotStart(str(failed)) from failed

    async def _add(self, name: str, page: Sequence[Letter]) -> int:
        """Raises BadInput when somebody else created one of them, with other content, a moment ago."""
        added = await self._store.add_letters(name, page)
        others = set(added.conflicts)
        envelopes = [letter.envelope for letter in page]
        _raise([_conflict(name, envelope) for envelope in envelopes if envelope.source_id in others])
        return added.created


class _Steps:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def done(self, count: int) -> None:
        self._done += count
        if self._progress:
            self._progress(self._done, self._total)


def _problems(submission: Submission, letters: Sequence[Letter]) -> Iterator[str]:
    """What is wrong with a submission by itself."""
    name, parcels = submission.batch.name, submission.parcels
    if not parcels:
        yield f"Batch {name!r} has no tasks."
    times = Counter((parcel.envelope.source_id, parcel.envelope.repeat) for parcel in parcels)
    for (source_id, repeat), count in times.items():
        if count > 1:
            yield f"{source_id!r}{_repeat(repeat)} is there {count} times; ids must differ."
    checked: dict[str, bytes] = {}
    for parcel, letter in zip(parcels, letters, strict=True):
        if parcel.envelope.batch != name:
            yield f"{parcel.envelope.source_id!r} belongs to batch {parcel.envelope.batch!r}, not {name!r}."
        if problem := oversize(letter):
            yield problem
        yield from _blob_problems(parcel, checked)


def _blob_problems(parcel: Parcel, checked: dict[str, bytes]) -> Iterator[str]:
    """Content that many tasks share is hashed once: `checked` holds what was."""
    envelope = parcel.envelope
    for ref, data in parcel.blobs.items():
        if checked.get(ref) is data:
            continue
        if reference(data) == ref:
            checked[ref] = data
        else:
            yield f"{envelope.source_id!r}: the content given for {ref} has another digest."


def _references(envelope: TaskEnvelope) -> Iterator[str]:
    if isinstance(envelope.instructions, BlobRef):
        yield envelope.instructions.ref
    if envelope.work_tree is not None:
        yield envelope.work_tree.ref
    for entry in (*envelope.files, *envelope.verify.files):
        yield entry.blob.ref


def _conflict(batch: str, envelope: TaskEnvelope) -> str:
    task = f"{envelope.source_id!r}{_repeat(envelope.repeat)}"
    return f"{task} is in batch {batch!r} with other content or settings; submit it under another batch name."


def _repeat(repeat: int) -> str:
    return f" (repeat {repeat})" if repeat > 1 else ""


def _raise(problems: Sequence[str]) -> None:
    """Raises BadInput with the first of many problems and how many there are in all."""
    if len(problems) > PROBLEMS_SHOWN:
        rest = len(problems) - PROBLEMS_SHOWN
        problems = [*problems[:PROBLEMS_SHOWN], f"… and {rest} more of {len(problems)} problems."]
    if problems:
        raise BadInput(problems)
