"""One attempt's books: its events, money, journal and checkpoints, in the store and the artifact store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from zubble_queue import long_strings
from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.books import Left, Listener
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import Checkpoint, Claim, OverLimit, Parked, Reserved
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.errors import BudgetExceededError, CeilingReached, ParkedTooLong
from zubble_queue.stores.redis import RedisStore
from zubble_worker.contact import Gate, patiently
from zubble_worker.parking import PARKED_SECONDS, Bell, Parking, pause_seconds
from zubble_worker.sizes import snapshot_bytes

CHECKPOINT_SECONDS: Final = 30.0
"""Snapshots of one attempt are at least this far apart (design: section 3.5)."""
_NOTED_SECONDS: Final = 0.1
"""A shorter wait for others is kept until there is more."""


class AttemptBooks:
    """Implements contracts.books.Books for a claimed lease."""

    def __init__(
        self,
        claim: Claim,
        store: RedisStore,
        artifacts: ArtifactStore,
        *,
        gate: Gate | None = None,
        bell: Bell | None = None,
        listeners: Sequence[Listener] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claim, self._store, self._artifacts, self._clock = claim, store, artifacts, clock
        self._gate = gate or Gate(clock)
        self._bell, self.parking, self._listeners = bell or Bell(), Parking(clock), listeners
        self.awaiting = Parking(clock)
        """For a person; the store charges none of it."""
        self._budget = claim.envelope.budget
        self._started = clock()
        self._open: dict[str, tuple[int, int]] = {}
        self._seq = claim.last_seq
        self._unwritten: list[Event] = []
        self._segments = list(claim.checkpoint.segments) if claim.checkpoint else []
        self._segment_seq = claim.checkpoint.seq if claim.checkpoint else 0
        self._fingerprint = ""
        self._checkpointed: float | None = None
        self._checkpointing = asyncio.Lock()
        self.last_snapshot = claim.checkpoint.snapshot if claim.checkpoint else None
        """The work tree of the newest checkpoint, of an earlier attempt where this one has none yet."""
        self.checkpoint_due = False
        """Set it to have the next completed step checkpointed, however fresh the last checkpoint is."""
        self.usage = claim.usage

    def now(self) -> float:
        return time.time()

    def wallclock_seconds(self) -> float:
        """Charged so far, earlier attempts included; what passed behind a closed gate or waiting is not."""
        waited = self.parking.seconds + self.awaiting.seconds
        here = self._clock() - self._started - self._gate.shut_seconds - waited
        return self._claim.wallclock_used_seconds + max(here, 0.0)

    def left(self) -> Left:
        return Left.of(self._budget, self.usage, self._open.values(), self.wallclock_seconds())

    async def record(self, type_: str, /, **data: Any) -> Event:
        small = await long_strings.small(data, self._artifacts)
        self._seq += 1
        event = Event(seq=self._seq, time=self.now(), attempt=self._claim.lease.epoch, type=type_, data=data)
        self._unwritten.append(event.model_copy(update={"data": small}))
        await self._write()
        for listener in self._listeners:
            listener.happened(event)
        return event

    async def _write(self) -> None:
        """Whoever was cancelled here cannot know what arrived, so it is written again with the next event."""
        if not (events := tuple(self._unwritten)):
            return
        try:
            await patiently(lambda: self._store.append(self._claim.lease, events))
        except ValueError:  # none of them will ever be taken
            self._seq, self._unwritten = events[0].seq - 1, []
            raise
        self._unwritten = [event for event in self._unwritten if event.seq > events[-1].seq]

    async def reserve(
        self, call_id: str, *, tokens: int, micro_usd: int, least_micro_usd: int | None = None
    ) -> int:
        lease, tries = self._claim.lease, 0
        latest = self._clock() + PARKED_SECONDS

        async def ask() -> Reserved | Parked | OverLimit:
            return await self._store.reserve(
                lease, call_id, tokens=tokens, micro_usd=micro_usd, least_micro_usd=least_micro_usd
            )

        while isinstance(answer := await patiently(ask), Parked):
            if self._clock() > latest:
                raise ParkedTooLong(f"{answer.limit}: others' calls left no room for {PARKED_SECONDS:g} s")
            with self.parking.waiting():
                await self._bell.heard(pause_seconds(tries))
            tries += 1
        if isinstance(answer, OverLimit):
            raise self._over(answer)
        self._open[call_id] = (tokens, answer.micro_usd)
        return answer.micro_usd

    def _over(self, answer: OverLimit) -> BudgetExceededError | CeilingReached:
        if answer.pauses:
            return CeilingReached(f"the ceiling {answer.limit} is reached")
        ceiling = {
            "tokens": f"max_tokens={self._budget.max_tokens}",
            "spend": f"max_spend_usd={self._budget.max_spend_usd}",
            "batch_spend": "the ceiling of the batch",
            "tenant_spend": "the ceiling of the tenant",
        }[answer.limit]
        return BudgetExceededError(answer.limit, f"{ceiling} exceeded")

    async def settle(self, call_id: str, usage: Usage) -> None:
        await patiently(lambda: self._store.settle(self._claim.lease, call_id, usage))
        self._bell.ring()
        if self._open.pop(call_id, None) is not None:
            self.usage = self.usage.plus(usage)
            for listener in self._listeners:
                listener.settled(usage)

    async def parked(self) -> float:
        if (seconds := self.parking.take(_NOTED_SECONDS)) > 0:
            await patiently(lambda: self._store.excuse(self._claim.lease, seconds))
        return seconds

    async def journal(self, entry: JournalEntry) -> None:
        await patiently(lambda: self._store.record(self._claim.lease, entry))

    async def baseline(self, sandbox: Sandbox) -> None:
        """Note the work tree as it was opened or restored: it needs no checkpoint."""
        self._fingerprint = await sandbox.fingerprint()

    async def step_done(self, sandbox: Sandbox) -> None:
        """Checkpoint when the work tree changed and the last checkpoint is old enough.

        While Redis is nearly full, after each step: that moves the events out of it.
        """
        now = self._clock()
        fresh = self._checkpointed is not None and now - self._checkpointed < CHECKPOINT_SECONDS
        full = await patiently(self._store.nearly_full)
        if fresh and not self.checkpoint_due and not full:
            return
        fingerprint = await sandbox.fingerprint()
        if fingerprint == self._fingerprint and not full:
            return
        self._fingerprint, self._checkpointed, self.checkpoint_due = fingerprint, now, False
        try:
            await self.checkpoint(lambda: sandbox.snapshot(max_bytes=snapshot_bytes(sandbox.spec)))
        except ValueError as too_large:
            await self.record("checkpoint_skipped", reason=str(too_large))

    async def checkpoint(
        self,
        snapshot: Callable[[], Awaitable[bytes]],
        *,
        unless: Callable[[], bool] = lambda: False,
        edits: Callable[[bytes], Awaitable[Mapping[str, str]]] | None = None,
    ) -> None:
        """Keep the work tree and the events up to now, so that the next attempt can go on from here.

        Events that come while the snapshot is taken are not of it. One checkpoint is taken at a time.

        Args:
            snapshot: Takes it.
            unless: Asked when it is this checkpoint's turn: true leaves it to the next completed step.
            edits: Makes artifacts of the snapshot, for an ending that nobody is there to write.
        """
        async with self._checkpointing:
            if unless():
                self.checkpoint_due = True
                return
            await self._write()
            seq = self._seq
            tree = await snapshot()
            kept, artifacts = await self._artifacts.aput(tree), await edits(tree) if edits else {}
            await self._close_segment(upto=seq)
            point = Checkpoint(seq=seq, snapshot=kept, segments=tuple(self._segments), artifacts=artifacts)
            await patiently(lambda: self._store.checkpoint(self._claim.lease, point))
            self.last_snapshot = kept

    async def start_over(self) -> Checkpoint:
        """A checkpoint that keeps the events and no work tree: the next attempt begins afresh."""
        await self._close_segment(upto=self._seq)
        return Checkpoint(seq=self._segment_seq, segments=tuple(self._segments))

    async def trajectory(self) -> BlobRef:
        """The whole event log as one JSONL blob."""
        await self._close_segment(upto=self._seq)
        lines = [await self._artifacts.aget(segment) for segment in self._segments]
        return await self._artifacts.aput(b"".join(lines))

    async def past_events(self) -> list[Event]:
        """The events the checkpoint of an earlier attempt holds, long strings put back."""
        events: list[Event] = []
        for segment in self._segments:
            lines = (await self._artifacts.aget(segment)).splitlines()
            events += [
                await long_strings.whole(Event.model_validate_json(line), self._artifacts) for line in lines
            ]
        return events

    async def _close_segment(self, *, upto: int) -> None:
        live = await self._live_events(after=self._segment_seq)
        events = [event for event in live if event.seq <= upto]
        if not events:
            return
        lines = b"".join(event.model_dump_json().encode("utf-8", "surrogatepass") + b"\n" for event in events)
        self._segments.append(await self._artifacts.aput(lines))
        self._segment_seq = events[-1].seq

    async def _live_events(self, *, after: int) -> list[Event]:
        found: list[Event] = []
        while batch := await patiently(self._events_after(after)):
            found += batch
            after = batch[-1].seq
        return found

    def _events_after(self, seq: int) -> Callable[[], Awaitable[list[Event]]]:
        return lambda: self._store.events(self._claim.lease.task_id, after=seq)
