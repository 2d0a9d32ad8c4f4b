"""The feeder: keeps the message queue as full as there are free slots, and mends what workers leave behind.

It runs wherever a worker, `zubble up` or `zubble dispatcher` lets it; one of them leads, the others wait for
the lead. Every step is one script in the store, so two that both think they lead do no harm.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential

from zubble_queue.contracts.envelope import Header
from zubble_queue.contracts.need import Offer
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import StoreUnavailable
from zubble_queue.stores.redis import RedisStore

ROLE: Final = "feeder"
REAP_SECONDS: Final = 2.0
"""Expired leases are found within three seconds; sooner where leases are short."""
CENSUS_SECONDS: Final = 30.0
LEAD_SECONDS: Final = 10.0
"""How long a dead leader's lead lasts; shorter where leases are short."""
LOST_MESSAGE_SECONDS: Final = 30.0
"""A message that is in no queue and was not claimed for so long is lost; shorter where leases are short."""
_SURPLUS: Final = 0.25
_LONGEST_WAIT_SECONDS: Final = 5.0

logger = structlog.get_logger(__name__)


class Publisher(Protocol):
    """Sends the messages that announce attempts. A message may be lost or doubled; the record decides."""

    async def publish(self, headers: Sequence[Header]) -> None:
        """Send one message per header. Whatever it raises, the headers are sent again."""

    async def depth(self, need: str) -> int:
        """Messages of a need's key that nobody has taken yet."""

    async def aclose(self) -> None:
        """Give up connections."""


@dataclass(slots=True)
class Tally:
    """What a feeder has done since it began."""

    leads: bool = False
    """Whether it leads now."""
    announced: int = 0
    """Messages sent."""
    requeued: int = 0
    stuck: int = 0
    """Leases that were reaped, by what became of the task."""
    mended: int = 0
    """Records, indexes and counters that the census put right."""
    failures: int = 0
    """Rounds that failed."""


def offers(workers: Iterable[WorkerInfo]) -> list[Offer]:
    """Workers that serve the same needs, together: room for their free slots and a quarter, rounded up."""
    free: Counter[tuple[str, ...]] = Counter()
    for worker in workers:
        free[worker.needs] += max(0, worker.slots - worker.busy)
    return [Offer(needs, math.ceil(slots * (1 + _SURPLUS))) for needs, slots in free.items()]


class Feeder:
    """Leads or waits; never ends by itself, and never lets an error out.

    Args:
        store: Where the tasks are.
        publisher: Where their messages go; closed when `run` ends.
        holder: Who this is, unique among all processes.
        lease_seconds: The installation's lease.
    """

    def __init__(
        self, store: RedisStore, publisher: Publisher, *, holder: str, lease_seconds: float = 60.0
    ) -> None:
        self._store, self._publisher, self._holder = store, publisher, holder
        self._lease_seconds = lease_seconds
        self._lead_seconds = min(LEAD_SECONDS, lease_seconds / 3)
        self._reap_seconds = min(REAP_SECONDS, lease_seconds / 8)
        self._unsent: list[Header] = []
        self.tally = Tally()
        self._reap_due = self._census_due = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then give the lead up, so that another takes it at its next look."""
        patiently = AsyncRetrying(
            wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_SECONDS),
            stop=lambda _: stop.is_set(),
            sleep=lambda seconds: _event_within(stop, seconds),
            before_sleep=self._failed,
            retry_error_callback=self._failed,
        )
        try:
            while not stop.is_set():
                await patiently(self._round, stop)
        finally:
            await self._leave()

    async def _round(self, stop: asyncio.Event) -> None:
        self.tally.leads = await self._store.lead(ROLE, self._holder, self._lead_seconds)
        if not self.tally.leads:
            await _unless(stop, self._store.wait_for_lead(ROLE, self._lead_seconds / 3))
            return
        await self._feed()
        await self._reap()
        await self._count()
        await _unless(stop, self._store.wait_for_work(self._seconds_to_wait()))

    async def _feed(self) -> None:
        await self._store.mature()
        await self._store.seal_over_ceiling()
        given = offers(await self._store.workers())
        room = sum(offer.room for offer in given)
        if room:
            self._unsent += await self._store.announce(room, given)
        await self._send()

    async def _send(self) -> None:
        """What cannot be sent now is sent in the next round; it stays announced meanwhile."""
        if not self._unsent:
            return
        try:
            await self._publisher.publish(self._unsent)
        except Exception as failed:  # noqa: BLE001 - the broker's errors are the publisher's own
            logger.warning("messages were not sent", action="publish_failed", cause=str(failed))
        else:
            self.tally.announced += len(self._unsent)
            self._unsent = []

    async def _reap(self) -> None:
        """Only after a whole lease of contact: whoever could not renew had the time to do so since.

        A gap of half a lease is none: renewed every quarter, a lease outlasts it. Nor is a new leader.
        """
        now = time.monotonic()
        if now < self._reap_due:
            return
        self._reap_due = now + self._reap_seconds
        await self._store.lapse()
        if await self._store.contact(self._lease_seconds / 2) < self._lease_seconds:
            return
        reaped = await self._store.reap()
        self.tally.requeued += len(reaped.requeued)
        self.tally.stuck += len(reaped.stuck)
        if reaped.requeued or reaped.stuck:
            logger.warning(
                "leases were reaped", action="reaped", requeued=reaped.requeued, stuck=reaped.stuck
            )

    async def _count(self) -> None:
        now = time.monotonic()
        if now < self._census_due:
            return
        self._census_due = now + min(CENSUS_SECONDS, self._lease_seconds)
        census = await self._store.census()
        self.tally.mended += sum(map(len, _lists(census).values()))
        if census.reannounced or census.orphans or census.miscounted:
            logger.warning("the census mended", action="census", **_lists(census))
        if not self._unsent:
            await self._find_lost_messages()

    async def _find_lost_messages(self) -> None:
        """Fewer messages than announced tasks: send that many of the oldest again; doubles are harmless."""
        age = min(LOST_MESSAGE_SECONDS, self._lease_seconds / 2)
        for need, count in (await self._store.announced_by_need()).items():
            depth = await self._depth(need)
            if depth is None:
                return
            self._unsent += await self._store.reannounce(age, count - depth, need)
        if self._unsent:
            tasks = [header.task_id for header in self._unsent]
            logger.warning("messages were lost", action="reannounced", tasks=tasks)
            await self._send()

    async def _depth(self, need: str) -> int | None:
        try:
            return await self._publisher.depth(need)
        except Exception as failed:  # noqa: BLE001 - as in _send; the next census asks again
            logger.warning("the queue's depth is unknown", action="depth_failed", cause=str(failed))
            return None

    def _seconds_to_wait(self) -> float:
        due = min(self._reap_due, self._census_due) - time.monotonic()
        return max(0.05, min(due, self._reap_seconds, self._lead_seconds / 3))

    async def _leave(self) -> None:
        self.tally.leads = False
        try:
            await self._store.resign(ROLE, self._holder)
            await self._publisher.aclose()
        except Exception as failed:  # noqa: BLE001 - leaving must not fail; the lead runs out by itself
            logger.warning("the feeder left without a word", action="feeder_left", cause=str(failed))

    def _failed(self, attempt: RetryCallState) -> None:
        """Any error at all: the worker beside it must go on, so it is logged, and the round tried again."""
        cause = attempt.outcome.exception() if attempt.outcome else None
        known = isinstance(cause, StoreUnavailable)
        self.tally.leads, self.tally.failures = False, self.tally.failures + 1
        logger.warning(
            "a feeding round failed",
            action="feeder_failed",
            cause=str(cause),
            failures=attempt.attempt_number,
            exc_info=None if known else cause,
        )


def _lists(census: Any) -> dict[str, list[str]]:
    return {
        "put_back": list(census.reannounced),
        "orphans": list(census.orphans),
        "miscounted": list(census.miscounted),
    }


async def _unless(stop: asyncio.Event, waiting: Awaitable[None]) -> None:
    """Wait, but no longer than until the event."""
    work, told = asyncio.ensure_future(waiting), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        work.cancel()
        told.cancel()
        await asyncio.gather(work, told, return_exceptions=True)


async def _event_within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
