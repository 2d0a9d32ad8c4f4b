"""A place at the provider before every try: whoever has none is parked, and all workers share the limits."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import StoreUnavailable
from zubble_queue.stores.limits import SLOT_SECONDS, Admitted, Limits, Place, Wait
from zubble_worker.contact import patiently
from zubble_worker.models.failure import TryFailed
from zubble_worker.parking import PARKED_SECONDS, Parking

_log = structlog.get_logger(__name__)
_RENEW_SECONDS: Final = SLOT_SECONDS / 4


class Provider:
    """One model's limits as one process sees them: its agents queue here, the first of them asks the store.

    Args:
        store: Where all workers keep what was used.
        name: The model's name; the limits are shared by it.
        config: Its table, with the limits.
        on_try: Told the model's name and how each try ended.
    """

    def __init__(
        self,
        store: Limits,
        name: str,
        config: ModelConfig,
        *,
        on_try: Callable[[str, TryEnd], object] = lambda _name, _end: None,
    ) -> None:
        self._store, self._name, self._config, self._on_try = store, name, config, on_try
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, tokens: int) -> Place:
        """Wait for a place, however long that takes."""
        place = Place(self._name, secrets.token_hex(8), tokens)
        async with self._turn:
            while not isinstance(answer := await self._asked(place), Admitted):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._freed.wait(), answer.seconds)
        return place

    async def give_back(self, place: Place, end: TryEnd) -> None:
        """In a silence of the store nothing is said: the slot runs out by itself."""
        self._on_try(self._name, end)
        with contextlib.suppress(StoreUnavailable):
            if await self._store.leave(place, self._config, end) and end.kind == "failed":
                _log.warning("the model's breaker is open", action="breaker_opened", model=self._name)
        self._freed.set()

    async def keep(self, place: Place) -> None:
        """Renew the place until cancelled."""
        while self._config.concurrency is not None:
            await asyncio.sleep(_RENEW_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self._store.keep_slot(place)

    async def _asked(self, place: Place) -> Admitted | Wait:
        self._freed.clear()
        return await patiently(lambda: self._store.admit(place, self._config))


@dataclass(slots=True)
class Admission:
    """One attempt's way to the provider; implements contracts.model.Admission.

    Args:
        provider: Of the model.
        parking: Where the attempt's waiting is counted.
    """

    provider: Provider
    parking: Parking
    patience_seconds: float = PARKED_SECONDS
    _place: Place | None = None
    _keeping: asyncio.Task[None] | None = None

    async def enter(self, tokens: int) -> None:
        """Raises TryFailed(cause `parked`) when there was no place in all the time one may wait."""
        try:
            with self.parking.waiting():
                async with asyncio.timeout(self.patience_seconds):
                    self._place = await self.provider.take(tokens)
        except TimeoutError as late:
            raise TryFailed("parked", f"no place for {self.patience_seconds:g} s") from late
        self._keeping = asyncio.create_task(self.provider.keep(self._place))

    async def leave(self, end: TryEnd) -> None:
        """Give the place back."""
        place, keeping = self._place, self._keeping
        self._place = self._keeping = None
        if keeping is not None:
            keeping.cancel()
        if place is not None:
            await self.provider.give_back(place, end)
