"""Keeping a lease: renewed in the background; in a long silence the attempt stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

from zubble_queue.contracts.record import Lease, Renewal
from zubble_queue.errors import StoreUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_queue.stores.redis import RedisStore

_SILENT_HASTE: Final = 4
"""How much more often renewal is tried in a silence."""


class Interruption(Enum):
    """Why an attempt must stop before its loop ends."""

    CANCELLED = "cancelled"
    """An operator asked for it; the attempt still owns its lease and seals."""
    LOST = "lost"
    """The lease is gone; the attempt writes nothing more."""
    HANDOVER = "handover"
    """The worker is leaving; the attempt is checkpointed and given back."""


class LeaseKeeper:
    """Renews one lease every quarter of its length, and says when the attempt must stop.

    After two thirds of a lease without a renewal it calls `on_silence`: an LLM provider cannot check tokens,
    so standing still in time is the only way not to pay twice. When the store answers again, the same token
    decides: renewed, and `on_contact` lets the attempt go on; refused, and it is LOST.
    """

    def __init__(
        self,
        store: RedisStore,
        lease: Lease,
        settings: LeaseSettings,
        *,
        on_silence: Callable[[float], Awaitable[None]],
        on_contact: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._lease, self._settings = store, lease, settings
        self._on_silence, self._on_contact = on_silence, on_contact
        self._clock, self._sleep = clock, sleep
        self._renewed, self._silent = clock(), False

    async def watch(self) -> Interruption:
        """Return when the attempt must stop."""
        self._renewed, self._silent = self._clock(), False
        while True:
            await self._sleep(self._pause_seconds())
            await self._notice_silence()
            renewal = await self._renewal(within=self._patience_seconds())
            if renewal is None:
                await self._notice_silence()
            elif not renewal.held:
                return Interruption.LOST
            elif renewal.cancel:
                return Interruption.CANCELLED
            else:
                await self._notice_contact()

    async def _notice_silence(self) -> None:
        if not self._silent and self._stillness_in() <= 0:
            self._silent = True
            await self._on_silence(self._renewed)

    async def _notice_contact(self) -> None:
        self._renewed = self._clock()
        if self._silent:
            self._silent = False
            await self._on_contact()

    def _stillness_in(self) -> float:
        """Seconds until the attempt must stand still."""
        return self._renewed + self._settings.self_stop_seconds - self._clock()

    def _pause_seconds(self) -> float:
        renew = self._settings.renew_seconds
        return renew / _SILENT_HASTE if self._silent else min(renew, max(self._stillness_in(), 0.0))

    def _patience_seconds(self) -> float:
        """An answer is awaited until the attempt must stand still; after that only a little at a time."""
        renew = self._settings.renew_seconds
        return min(renew, max(self._stillness_in(), renew / _SILENT_HASTE))

    async def _renewal(self, *, within: float) -> Renewal | None:
        try:
            async with asyncio.timeout(within):
                return await self._store.renew(self._lease)
        except (StoreUnavailable, TimeoutError):
            return None
