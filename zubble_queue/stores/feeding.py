"""The feeder's side of the store: leadership, announcing, reaping, and the census."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from zubble_queue.contracts.envelope import Header
from zubble_queue.contracts.need import Offer
from zubble_queue.contracts.record import Census, Reaped
from zubble_queue.stores import codec
from zubble_queue.stores.connection import micro
from zubble_queue.stores.operating import Operating
from zubble_queue.stores.submitting import Submitting

_CHUNK: Final = 200
"""Tasks per announcing or reaping script call."""
_PROMPT_SECONDS: Final = 2.0
"""A server that answers within this is there, so leases that ran out could have been renewed; less where they
are short."""

AGEING_SECONDS: Final = 60
"""A batch none of whose tasks was announced for so long rises by one priority."""

logger = structlog.get_logger(__name__)


class Feeding(Submitting, Operating):
    """Safe with several feeders at once: each step is one script; leadership only saves work."""

    async def lead(self, role: str, holder: str, ttl_seconds: float) -> bool:
        """Take or keep a role; False while another holder's time has not run out."""
        return bool(await self._run("lead", role, holder, max(1, round(ttl_seconds * 1_000))))

    async def resign(self, role: str, holder: str) -> None:
        """Give a role up, if it is held."""
        await self._run("resign", role, holder)

    async def announce(self, limit: int, offers: Sequence[Offer] | None = None) -> list[Header]:
        """Take waiting tasks, fairly over the batches; their messages are the caller's to send.

        Args:
            limit: The most to take.
            offers: What the workers have room for; what is announced already is taken off. None means room
                for everything.
        """
        given = _offer_arguments(offers)
        headers: list[Header] = []
        taken = 0
        while (most := min(_CHUNK, limit - taken)) > 0:
            rows = await self._run("announce", most, AGEING_SECONDS, *given)
            headers += _headers(rows)
            taken += len(rows)
            if len(rows) < most:
                break
        return headers

    async def reannounce(
        self, older_than_seconds: float, limit: int, need: str | None = None
    ) -> list[Header]:
        """Headers, with a higher push, of tasks announced that long ago and not claimed since.

        Args:
            older_than_seconds: How long ago.
            limit: The most.
            need: Only tasks of this need's key; None means all.
        """
        if limit < 1:
            return []
        return _headers(await self._run("reannounce", micro(older_than_seconds), limit, need or ""))

    async def announced_by_need(self) -> dict[str, int]:
        """How many tasks are announced and not yet claimed, by the key of what they need."""
        return dict(Counter(await self._run("announced_needs")))

    async def announced(self) -> int:
        """How many tasks are announced and not yet claimed."""
        return int(await self._do("ZCARD", self._keys.announced))

    async def mature(self) -> int:
        """Let postponed tasks whose delay is over wait to be fed again; returns how many."""
        return int(await self._run("mature", _CHUNK))

    async def contact(self, longest_gap_seconds: float) -> float:
        """Say that a feeder is here; for how many seconds there was always one, without a longer gap.

        By the server's clock and kept there, so that it also tells a silence of the server, a jump of its
        clock, and a feeder that was stopped from feeders that only took turns.
        """
        return int(await self._run("contact", micro(longest_gap_seconds))) / 1_000_000

    async def reap(self) -> Reaped:
        """Take expired leases away: back to the queue, or sealed `stuck` at max_attempts.

        A sweep that the server is late to begin does nothing. While it was silent nobody could renew, and
        what waited there meanwhile, this sweep and the renewals, is done in no particular order.
        """
        requeued: list[str] = []
        stuck: list[str] = []
        seen = _CHUNK
        while seen == _CHUNK:
            if (latest := await self._soon()) is None:
                break
            seen, again, ended = await self._run("reap", _CHUNK, latest)
            requeued += again
            stuck += ended
        return Reaped(tuple(requeued), tuple(stuck))

    async def _soon(self) -> int | None:
        """Until when a sweep may begin, by the server's clock; None when even that answer took too long."""
        patience = min(_PROMPT_SECONDS, self._options.lease_seconds / 4)
        asked = time.monotonic()
        seconds, microseconds = await self._do("TIME")
        if time.monotonic() - asked > patience:
            return None
        return int(seconds) * 1_000_000 + int(microseconds) + micro(patience)

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """Return when something happened that a feeder should look at, or at the timeout."""
        seconds = max(0.01, timeout_seconds)
        await self._do("BLPOP", self._keys.wake, seconds, blocking_seconds=seconds)

    async def wait_for_lead(self, role: str, timeout_seconds: float) -> None:
        """Return when the holder of a role gives it up, or at the timeout; one of those who wait is told."""
        seconds = max(0.01, timeout_seconds)
        await self._do("BLPOP", self._keys.vacant(role), seconds, blocking_seconds=seconds)

    async def census(self) -> Census:
        """Compare records, indexes and counters, and mend what disagrees.

        A counter is mended only in a batch that did not move while it was counted, so a busy one waits for a
        quieter moment. Batches that are done are left alone.
        """
        findings = _Findings(orphans=await self._run("sweep"))
        for name in await self._batch_names():
            if await self._do("TTL", self._keys.batch(name)) < 0:
                await self._inspect(name, findings)
        return Census(tuple(findings.put_back), tuple(findings.orphans), tuple(findings.miscounted))

    async def _inspect(self, batch: str, findings: _Findings) -> None:
        key = self._keys.batch(batch)
        state, changes = (await self._pipe([("HMGET", key, "state", "changes")]))[0]
        if state == "cancelled":
            await self.cancel_batch(batch)
            return
        counters: Counter[str] = Counter()
        after = "0"
        while after:
            after, orphans, put_back, seen = await self._run("inspect", batch, after, _CHUNK)
            findings.orphans += orphans
            findings.put_back += put_back
            counters.update(seen)
        pairs = [part for pair in counters.items() for part in pair]
        if await self._run("recount", batch, changes or "0", *pairs):
            findings.miscounted.append(batch)


@dataclass(slots=True)
class _Findings:
    orphans: list[str]
    put_back: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)


def _offer_arguments(offers: Sequence[Offer] | None) -> list[str | int]:
    if offers is None:
        return [-1]
    values: list[str | int] = [len(offers)]
    for offer in offers:
        values += [offer.room, len(offer.needs), *offer.needs]
    return values


def _headers(rows: Sequence[Sequence[Any]]) -> list[Header]:
    headers = []
    for row in rows:
        if (header := codec.header(row)) is None:
            logger.warning("a waiting task has an envelope of an unknown form", task_id=row[0])
        else:
            headers.append(header)
    return headers
