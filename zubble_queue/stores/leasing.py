"""The worker's side of the store: registration, claims, and the writes that a lease's token guards."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Final

from zubble_queue.contracts.ending import MICRO, Ending, Usage
from zubble_queue.contracts.envelope import ENVELOPE_VERSION, Header
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.memory import MEMORY_ENTRIES, MEMORY_ENTRY_BYTES, MemoryEntry
from zubble_queue.contracts.record import (
    Checkpoint,
    Claim,
    Lease,
    OverLimit,
    Parked,
    PastAttempt,
    Refused,
    Renewal,
    Reserved,
    Unreadable,
    WorkerInfo,
)
from zubble_queue.errors import LeaseLost
from zubble_queue.stores import codec
from zubble_queue.stores.connection import micro
from zubble_queue.stores.reading import Reading

EVENT_BYTES: Final = 65_536
"""The most one event may take as JSON; longer values belong in the artifact store."""
LIVE_EVENT_BYTES: Final = 8 * 1_048_576
"""The most a task's events may take in Redis before a checkpoint moves them to a segment."""
CHECKPOINT_BYTES: Final = 65_536
KEPT_ELSEWHERE_SECONDS: Final = 3_600
"""How long the events of a sealed task stay for those who read along, when its trajectory holds them all."""
INFRA_FAILURES: Final = 10
INFRA_SECONDS: Final = 3_600.0
"""So often, and so long after the first failure, a task whose attempts the machinery fails is tried again."""
INFRA_DELAY_SECONDS: Final = 300.0
"""The most it is kept from being fed; the first delay is a second, and each one is twice the one before."""
JOURNAL_ENTRIES: Final = 500
"""The newest trials that are kept."""


class Leasing(Reading):
    """Every guarded write raises LeaseLost when its token is not the current one, and may be repeated."""

    async def register(self, info: WorkerInfo, *, ttl_seconds: float) -> None:
        """Say that a worker lives; to be repeated well within the ttl."""
        await self._run("register", info.worker_id, info.model_dump_json(), round(ttl_seconds * 1_000))

    async def unregister(self, worker_id: str) -> None:
        """A worker takes no more tasks; its leases stay its own."""
        await self._run("unregister", worker_id)

    async def claim(
        self, header: Header, *, worker_id: str, lease_id: str | None = None
    ) -> Claim | Unreadable | Refused:
        """Take the lease a message announces.

        Args:
            header: The message; it is a hint, and the record decides.
            worker_id: Who will run it.
            lease_id: 128 random bits in hex, by default fresh ones; the same id may claim again after a
                lost answer and gets the same lease.
        """
        lease_id = lease_id or secrets.token_hex(16)
        answer = await self._run(
            *("claim", header.task_id, header.attempt, header.round, ENVELOPE_VERSION, worker_id, lease_id),
            header.push,
        )
        if answer[0] != "granted":
            return Refused(answer[0])
        batch, round_, envelope, wallclock, checkpoint, last_seq, previous_end, retries, past, *rest = answer[
            1
        ]
        asked, used = rest[: len(codec.ASKED_FIELDS)], rest[len(codec.ASKED_FIELDS) :]
        lease = Lease(header.task_id, batch, header.attempt, lease_id, int(round_))
        try:
            task = codec.envelope(header.task_id, envelope)
        except ValueError as unreadable:
            return Unreadable(lease, str(unreadable))
        return Claim(
            lease=lease,
            envelope=task,
            usage=codec.usage(used),
            wallclock_used_seconds=codec.seconds(wallclock) or 0.0,
            checkpoint=Checkpoint.model_validate_json(checkpoint) if checkpoint else None,
            last_seq=int(last_seq),
            previous_end=previous_end or "none",
            retries_left=max(int(answer[2]) - int(retries or 0), 0),
            waited_seconds=int(answer[3]) / MICRO,
            past=tuple(PastAttempt.model_validate(entry) for entry in json.loads(past or "[]")),
            asked=codec.asked(asked),
        )

    async def renew(self, lease: Lease) -> Renewal:
        """Keep the lease; it may have expired, as long as it has not been reaped."""
        held, cancel = await self._run("renew", lease.task_id, lease.token)
        return Renewal(held=bool(held), cancel=bool(cancel))

    async def reserve(
        self, lease: Lease, call_id: str, *, tokens: int, micro_usd: int, least_micro_usd: int | None = None
    ) -> Reserved | Parked | OverLimit:
        """Put the most a call can cost on the books of the task, its batch and its tenant, before the call.

        Args:
            lease: Whose call it is.
            call_id: Unique within the task; asking again for an open one reserves once.
            tokens: The most it can use.
            micro_usd: The most it can cost.
            least_micro_usd: What the smallest useful call costs; by default no smaller one is useful. A batch
                or tenant near its ceiling grants what is between.
        """
        least = micro_usd if least_micro_usd is None else least_micro_usd
        answer = await self._run("reserve", lease.task_id, lease.token, call_id, tokens, micro_usd, least)
        if answer[0] == "lost":
            raise _lost(lease)
        if answer[0] == "reserved":
            return Reserved(call_id, answer[1])
        if answer[0] == "parked":
            return Parked(answer[1])
        return OverLimit(answer[0], answer[1], pauses=answer[2] == "pause")

    async def settle(self, lease: Lease, call_id: str, usage: Usage) -> None:
        """Replace a reservation by what the call really cost, which may be more; idempotent by call_id."""
        amounts = [part for name in codec.USAGE_FIELDS for part in (name, getattr(usage, name))]
        _kept(lease, await self._run("settle", lease.task_id, lease.token, call_id, *amounts))

    async def append(self, lease: Lease, events: Sequence[Event]) -> None:
        """Add events behind the task's last one; those already there are passed over.

        Raises:
            ValueError: An event is over EVENT_BYTES, a seq is missing, or the live log is over
                LIVE_EVENT_BYTES and waits for a checkpoint with segments.
        """
        if not events:
            return
        pairs = [part for event in events for part in (event.seq, _event_json(event))]
        answer = await self._run("append", lease.task_id, lease.token, LIVE_EVENT_BYTES, *pairs)
        if answer[0] == "lost":
            raise _lost(lease)
        if answer[0] == "gap":
            raise ValueError(f"event seqs must go on from {answer[1]} without a gap")
        if answer[0] == "full":
            raise ValueError(f"{answer[1]:,} bytes of live events: move them to a segment first")

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> None:
        """Say from where the next attempt can go on, and drop the live events its segments hold.

        Raises:
            ValueError: It is over CHECKPOINT_BYTES, or names events that were never appended.
        """
        text = checkpoint.model_dump_json()
        if len(text) > CHECKPOINT_BYTES:
            raise ValueError(
                f"a checkpoint of {len(text):,} bytes is over {CHECKPOINT_BYTES:,}: merge segments"
            )
        has_segments = int(bool(checkpoint.segments))
        answer = await self._run("checkpoint", lease.task_id, lease.token, checkpoint.seq, has_segments, text)
        if answer[0] == "lost":
            raise _lost(lease)
        if answer[0] == "ahead":
            raise ValueError(f"a checkpoint at event {checkpoint.seq}, but the last event is {answer[1]}")

    async def record(self, lease: Lease, entry: JournalEntry) -> None:
        """Keep one trial in the task's journal, which holds the newest JOURNAL_ENTRIES.

        Left out when Redis is nearly full: the events have it, too.
        """
        if await self.nearly_full():
            return
        text = entry.model_dump_json()
        _kept(lease, await self._run("record", lease.task_id, lease.token, JOURNAL_ENTRIES, text))

    async def seal(self, lease: Lease, ending: Ending, memory: MemoryEntry | None = None) -> None:
        """End the task's round: its ending, its worklog entry and its batch's counters in one step.

        The usage of record is the ledger's, not the ending's; calls still open are charged in full.

        Args:
            lease: The right to seal it.
            ending: How it ended.
            memory: What later runs of its task type may know, at most MEMORY_ENTRY_BYTES; left out when
                Redis is nearly full.

        Raises:
            ValueError: The memory is too long.
        """
        phases = [part for name, time in ending.seconds.items() for part in (name, micro(time))]
        arguments = (
            ending.outcome,
            ending.tokens_saved,
            codec.ending_json(ending),
            await self._worklog_entry(lease, ending),
            self._events_ttl(ending),
            *await self._memory_arguments(memory),
            *phases,
        )
        _kept(lease, await self._run("seal", lease.task_id, lease.token, *arguments))

    async def release(self, lease: Lease, *, cause: str) -> None:
        """Give the task back to the queue: a hand-over, counted against nobody. The cause is one sentence."""
        _kept(lease, await self._run("release", lease.task_id, lease.token, cause[:1_000]))

    async def postpone(self, lease: Lease, *, cause: str, unforeseen: bool = False) -> float | None:
        """Give the task back because the machinery failed; it is fed again after a growing delay.

        It counts against nobody. After INFRA_FAILURES in a round, or INFRA_SECONDS after the first, the
        task is sealed `infra` with all causes as evidence. A failure that nobody foresaw may be the task's
        own doing: it counts as a lost attempt, and at max_attempts the task is sealed `stuck`.

        Returns:
            Seconds until it is fed again; None when it was sealed.
        """
        limits = (INFRA_FAILURES, micro(INFRA_SECONDS), micro(INFRA_DELAY_SECONDS))
        arguments = (cause[:1_000], *limits, int(unforeseen))
        answer = await self._run("postpone", lease.task_id, lease.token, *arguments)
        if answer[0] == "lost":
            raise _lost(lease)
        return None if answer[0] == "sealed" else answer[1] / MICRO

    async def try_again(self, lease: Lease, ending: Ending, checkpoint: Checkpoint) -> int | None:
        """Have an attempt that ended unverified followed by another one, in the same round and budget.

        Args:
            lease: Of the attempt that ended.
            ending: How; its summary stays with the task.
            checkpoint: What the next attempt takes up: the event log, and as a rule no work tree.

        Returns:
            The number of the retry; None when the batch allows no more.
        """
        summary = {
            "outcome": ending.outcome,
            "reason": ending.reason,
            "iterations_used": ending.iterations_used,
            "artifacts": dict(ending.artifacts),
        }
        arguments = (checkpoint.model_dump_json(), json.dumps(summary))
        answer = await self._run("try_again", lease.task_id, lease.token, *arguments)
        if answer[0] == "lost":
            raise _lost(lease)
        return None if answer[0] == "spent" else int(answer[1])

    async def excuse(self, lease: Lease, seconds: float) -> None:
        """Take time off the task's wall clock in which it waited for others (C50)."""
        _kept(lease, await self._run("excuse", lease.task_id, lease.token, micro(seconds)))

    async def set_preflighted(self, content_hash: str) -> None:
        """Remember that this content has passed its preflight; left out when Redis is nearly full."""
        if await self.nearly_full():
            return
        ttl = self._options.record_ttl_seconds
        await self._do("SET", self._keys.preflight(content_hash), "1", "EX", ttl)

    def _events_ttl(self, ending: Ending) -> int:
        ttl = self._options.record_ttl_seconds
        return min(ttl, KEPT_ELSEWHERE_SECONDS) if "trajectory" in ending.artifacts else ttl

    async def _memory_arguments(self, memory: MemoryEntry | None) -> tuple[str, int, str]:
        if memory is None or await self.nearly_full():
            return "", 0, ""
        text = memory.model_dump_json()
        if (size := len(text.encode())) > MEMORY_ENTRY_BYTES:
            raise ValueError(f"a memory of {size:,} bytes; {MEMORY_ENTRY_BYTES:,} is the most")
        return memory.task_type, MEMORY_ENTRIES, text

    async def _worklog_entry(self, lease: Lease, ending: Ending) -> str:
        usage_fields = (f"usage:{name}" for name in codec.USAGE_FIELDS)
        key = self._keys.task(lease.task_id)
        envelope, *settled = await self._do("HMGET", key, "envelope", *usage_fields)
        if envelope is None:
            raise _lost(lease)
        of_record = ending.model_copy(update={"usage": codec.usage(settled)})
        try:
            task = codec.envelope(lease.task_id, envelope)
        except ValueError:
            return ""
        return of_record.output(task.task).worklog_entry


def _event_json(event: Event) -> str:
    text = event.model_dump_json()
    if (size := len(text.encode())) > EVENT_BYTES:
        raise ValueError(f"event {event.seq} ({event.type}) has {size:,} bytes; {EVENT_BYTES:,} is the most")
    return text


def _kept(lease: Lease, answer: int) -> None:
    if not answer:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"Attempt {lease.epoch} no longer owns task {lease.task_id}.")
