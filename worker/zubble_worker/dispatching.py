"""What a dispatcher does beside feeding: how many workers a pool should have, metrics, and marks on pods."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from zubble_queue import scaling
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import StoreUnavailable
from zubble_queue.feeder import Feeder
from zubble_queue.settings import Settings
from zubble_queue.stores.redis import RedisStore
from zubble_worker.deletion_cost import Cluster, DeletionCosts
from zubble_worker.http_server import Answer, Bridge, HttpServer
from zubble_worker.pool_metrics import FeederMetrics, PoolMetrics, State
from zubble_worker.registries import registry_of

FRESH_SECONDS: Final = 1.0
"""However many ask, Redis is asked once in this time."""
_MOST_SLOTS: Final = 1_000


class Watch:
    """The backlog and the workers, as old as FRESH_SECONDS at most."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._asking = asyncio.Lock()
        self._state: State | None = None
        self._asked = 0.0

    async def state(self) -> State:
        """Raises StoreUnavailable."""
        async with self._asking:
            if self._state is None or time.monotonic() - self._asked >= FRESH_SECONDS:
                self._state = None
                self._state = (await self._store.demand(), await self._store.workers())
                self._asked = time.monotonic()
            return self._state

    async def workers(self) -> Sequence[WorkerInfo]:
        """Raises StoreUnavailable."""
        return (await self.state())[1]


class ScalingRoute:
    """Answers `?pool=NAME[&slots=N]`.

    Args:
        bridge: To the loop that the watch belongs to.
        watch: Where the numbers come from.
        slots: Of a worker, where nobody says it and none lives.
    """

    def __init__(self, bridge: Bridge, watch: Watch, slots: int) -> None:
        self._bridge, self._watch, self._slots = bridge, watch, slots

    def __call__(self, query: Mapping[str, str]) -> Answer:
        pool, slots = query.get("pool", ""), query.get("slots")
        if not pool:
            return _wrong("name a pool: /scaling?pool=NAME")
        if slots is not None and not (slots.isdecimal() and 1 <= int(slots) <= _MOST_SLOTS):
            return _wrong(f"slots must be a number from 1 to {_MOST_SLOTS}")
        try:
            demand, workers = self._bridge.ask(self._watch.state)
        except (StoreUnavailable, TimeoutError):
            silent = {"schema": scaling.SCHEMA, "error": "Redis does not answer"}
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, silent)
        load = scaling.pool_load(pool, demand, workers)
        return Answer(HTTPStatus.OK, load.answer(int(slots) if slots else load.widest or self._slots))


class Beside:
    """Serves /healthz, /metrics and /scaling from the moment it is made, for the loop that runs.

    Args:
        store: Where the numbers are.
        feeder: Of this process.
        settings: Of the installation.
        where: Address and port; port 0 takes a free one.
        deletion_cost: Whether the pods of workers are told apart for scale-in.

    Raises:
        CannotStart: The address is not to be had, or this is no pod with a service account.
    """

    def __init__(
        self,
        store: RedisStore,
        feeder: Feeder,
        settings: Settings,
        *,
        where: tuple[str, int],
        deletion_cost: bool = False,
    ) -> None:
        bridge, watch = Bridge(asyncio.get_running_loop()), Watch(store)
        cluster = Cluster.around(os.environ) if deletion_cost else None
        self._costs = cluster and DeletionCosts(cluster, watch.workers, lambda: feeder.tally.leads)
        registry = registry_of(PoolMetrics(lambda: bridge.ask(watch.state)), FeederMetrics(feeder))
        scale = ScalingRoute(bridge, watch, settings.worker.slots)
        self._server = HttpServer(*where, registry, {"/healthz": bridge.health, "/scaling": scale})
        self.url = f"http://{where[0]}:{self._server.port}"

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; then nobody listens any more."""
        if self._costs:
            await self._costs.run(stop)
        await stop.wait()
        await asyncio.to_thread(self._server.close)


def _wrong(problem: str) -> Answer:
    return Answer(HTTPStatus.BAD_REQUEST, {"schema": scaling.SCHEMA, "error": problem})
