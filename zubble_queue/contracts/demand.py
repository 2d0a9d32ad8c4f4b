"""What waits and runs, by pool: what the number of workers follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zubble_queue.contracts.need import Need

Held = Literal[
    "cancelled", "paused", "batch_spend", "tenant_spend", "breaker", "model_slots", "cap", "unserved"
]
"""Why a waiting task is not to be begun now: what became of its batch; a ceiling that was reached; its model
fails, or has no place for another call; its batch runs as many as it may; no living worker of its pool has
what it needs."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The waiting tasks of one batch that need the same of a worker."""

    batch: str
    need: Need
    waiting: int
    """Not announced yet."""
    announced: int
    """Announced and not yet claimed."""
    held: Held | None
    """What holds back all of them; None where some may be begun."""
    room: int | None
    """How many more of the waiting tasks of its batch, of all its lanes together, may be begun; None: all."""
    oldest_seconds: float
    """How long the first of those that are not announced waits; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Taken in a few round trips: what is claimed meanwhile may be counted twice, or not at all."""

    lanes: tuple[Lane, ...]
    running: Mapping[Need, int]
    """Tasks that hold a slot."""
    delayed: int
    """Tasks that wait until the machinery may be tried again; they are in no lane."""
