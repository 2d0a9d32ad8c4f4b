"""Keeping a lease: renewed in the background; lost, or Redis silent too long, and the attempt stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum

import structlog

from zubble_queue.contracts.record import Lease
from zubble_queue.errors import StoreUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_queue.stores.redis import RedisStore

_log = structlog.get_logger(__name__)


class Interruption(Enum):
    """Why an attempt must stop before its loop ends."""

    CANCELLED = "cancelled"
    """An operator asked for it; the attempt still owns its lease and seals."""
    LOST = "lost"
    """The lease is gone, or nobody knows; the attempt writes nothing more."""
    HANDOVER = "handover"
    """The worker is leaving; the attempt is checkpointed and given back."""


class LeaseKeeper:
    """Renews one lease every quarter of its length, and says when the attempt must stop.

    Without a successful renewal for two thirds of the lease it reports LOST: an LLM provider cannot check
    tokens, so stopping in time is the only way not to pay twice.
    """

    def __init__(
        self,
        store: RedisStore,
        lease: Lease,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._lease, self._settings = store, lease, settings
        self._clock, self._sleep = clock, sleep

    async def watch(self) -> Interruption:
        """Return when the attempt must stop."""
        renewed = self._clock()
        while True:
            await self._sleep(self._settings.renew_seconds)
            try:
                async with asyncio.timeout(self._settings.renew_seconds):
                    renewal = await self._store.renew(self._lease)
            except (StoreUnavailable, TimeoutError):
                if self._clock() - renewed >= self._settings.self_stop_seconds:
                    _log.warning("no renewal; stopping", action="lease_unknown", task_id=self._lease.task_id)
                    return Interruption.LOST
                continue
            renewed = self._clock()
            if not renewal.held:
                return Interruption.LOST
            if renewal.cancel:
                return Interruption.CANCELLED
