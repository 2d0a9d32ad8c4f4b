"""What a dispatcher serves over HTTP: how many workers each pool should have, and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from zubble_queue import scaling
from zubble_queue.errors import StoreUnavailable
from zubble_queue.feeder import Feeder
from zubble_queue.settings import Settings
from zubble_queue.stores.redis import RedisStore
from zubble_worker.http_server import Answer, Bridge, HttpServer
from zubble_worker.pool_metrics import FeederMetrics, PoolMetrics, State, registry_of

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
        except (StoreUnavailable, TimeoutError) as failed:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, {"schema": scaling.SCHEMA, "error": str(failed)})
        load = scaling.pool_load(pool, demand, workers)
        return Answer(HTTPStatus.OK, load.answer(int(slots) if slots else load.widest or self._slots))


def serve(store: RedisStore, feeder: Feeder, settings: Settings, *, address: str, port: int) -> HttpServer:
    """Serve /healthz, /metrics and /scaling for the loop that runs. Raises CannotStart."""
    bridge, watch = Bridge(asyncio.get_running_loop()), Watch(store)
    registry = registry_of(PoolMetrics(lambda: bridge.ask(watch.state)), FeederMetrics(feeder))
    scale = ScalingRoute(bridge, watch, settings.worker.slots)
    return HttpServer(address, port, registry, {"/healthz": bridge.health, "/scaling": scale})


def _wrong(problem: str) -> Answer:
    return Answer(HTTPStatus.BAD_REQUEST, {"schema": scaling.SCHEMA, "error": problem})
