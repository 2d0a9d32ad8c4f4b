"""What a provider allows, shared by all workers: rates, slots, and a breaker per model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.stores.connection import micro
from zubble_queue.stores.reading import Reading

SLOT_SECONDS: Final = 60.0
"""A slot whose worker died is free again after this; a living one renews it four times as often."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may be made now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now."""

    seconds: float
    """When to ask again."""
    why: str
    """breaker, probe, hold, requests, tokens or slots."""


@dataclass(frozen=True, slots=True)
class Place:
    """One try's place at the provider, held or asked for."""

    model: str
    slot: str
    """Unique."""
    tokens: int
    """The most it can use."""


class Limits(Reading):
    """The limits are those of the asking worker's configuration; what was used of them is everybody's."""

    async def admit(self, place: Place, config: ModelConfig) -> Admitted | Wait:
        """Take a place, if every limit has room for it."""
        limits = (_or_none(config.rpm), _or_none(config.tpm), _or_none(config.concurrency))
        answer = await self._run("admit", place.model, *limits, place.tokens, place.slot, micro(SLOT_SECONDS))
        return Admitted() if answer[0] == "admitted" else Wait(answer[1] / 1_000_000, answer[2])

    async def keep_slot(self, place: Place) -> None:
        """Renew a held slot."""
        await self._run("keep_slot", place.model, place.slot, micro(SLOT_SECONDS))

    async def leave(self, place: Place, config: ModelConfig, end: TryEnd) -> bool:
        """Give the place back and say how the try ended; True when the model's breaker is open now."""
        hold = "" if end.retry_after_seconds is None else micro(end.retry_after_seconds)
        limits = (_or_none(config.rpm), _or_none(config.tpm))
        answer = await self._run(
            "leave", place.model, place.slot, end.kind, *limits, place.tokens, end.tokens, hold
        )
        return bool(answer)


def _or_none(limit: int | None) -> int | str:
    return "" if limit is None else limit
