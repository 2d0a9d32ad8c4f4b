"""What waits and runs, as whoever decides about the number of workers reads it. Nothing here writes."""

from __future__ import annotations

from collections import Counter

from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.need import Need
from zubble_queue.stores.reading import PAGE, Reading


class Demanding(Reading):
    """Asks by the same functions as the feeder does what may be begun."""

    async def demand(self) -> Demand:
        """The whole backlog, in a script for the batches and one for every PAGE of running tasks."""
        lanes = [
            Lane(
                batch=batch,
                need=Need.of(need),
                waiting=waiting,
                announced=announced,
                held=of_batch or of_lane or None,
                room=None if room < 0 else room,
                oldest_seconds=int(oldest) / MICRO,
            )
            for batch, of_batch, room, rows in await self._run("backlog")
            for need, of_lane, waiting, announced, oldest in rows
        ]
        return Demand(tuple(lanes), await self._running(), int(await self._do("ZCARD", self._keys.delayed)))

    async def _running(self) -> dict[Need, int]:
        counts: Counter[Need] = Counter()
        first, seen = 0, PAGE
        while seen == PAGE:
            seen, flat = await self._run("running_needs", first, first + PAGE - 1)
            first += seen
            for need, count in zip(flat[::2], flat[1::2], strict=True):
                counts[Need.of(need)] += count
        return dict(counts)
