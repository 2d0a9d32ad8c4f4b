"""What waits and runs, as whoever decides about the number of workers reads it. Nothing here writes."""

from __future__ import annotations

from collections import Counter

from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.need import Need
from zubble_queue.stores.reading import PAGE, Reading


class Demanding(Reading):
    """Asks by the same functions as the feeder does what may be begun."""

    async def demand(self) -> Demand:
        """The whole backlog. Costs Redis some 20 ms with 10,000 running tasks."""
        lanes = [
            Lane(
                batch=batch,
                need=Need.of(need),
                waiting=waiting,
                announced=announced,
                held=of_batch or of_lane or None,
                room=None if room < 0 else room,
                oldest_seconds=int(oldest) / 1_000_000,
            )
            for batch, of_batch, room, rows in await self._run("backlog")
            for need, of_lane, waiting, announced, oldest in rows
        ]
        return Demand(tuple(lanes), await self._running(), int(await self._do("ZCARD", self._keys.delayed)))

    async def _running(self) -> dict[Need, int]:
        ids = await self._do("ZRANGE", self._keys.leases, 0, -1)
        counts: Counter[Need] = Counter()
        for at in range(0, len(ids), PAGE):
            page = ids[at : at + PAGE]
            needs = await self._pipe([("HGET", self._keys.task(id_), "need") for id_ in page])
            counts.update(Need.of(need) for need in needs if need)
        return dict(counts)
