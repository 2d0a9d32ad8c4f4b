"""A day of submissions: when, how many tasks, how long each takes, and what its owner does with it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DAY: Final = 86_400.0
MEAN_TASK_SECONDS: Final = 600.0
_LONGEST_TASK_SECONDS: Final = 3_600.0
_SPREAD: Final = 1.0
"""Sigma of the lognormal distribution of task lengths: the middle of them 6 minutes, a tenth over 22."""
_HOURS: Final = (1, 1, 0, 0, 0, 0, 1, 3, 8, 10, 9, 6, 4, 8, 10, 9, 7, 5, 3, 2, 2, 2, 6, 3)
"""Weight of each hour: mornings, afternoons, and a run before midnight."""


@dataclass(slots=True)
class Batch:
    """Tasks submitted together."""

    name: str
    at: float
    """Seconds since midnight."""
    lengths: list[float]
    """Seconds each task needs a slot."""
    cap: int | None = None
    """The most of them that may run at once."""
    paused: tuple[float, float] | None = None
    """From when to when its owner lets nothing of it begin."""


def batches(slots: int, load: float, seed: int) -> list[Batch]:
    """Submissions that would keep that share of the slots busy over the whole day, by time.

    One in ten batches has a cap with which it takes two hours, and one in ten is paused for two hours.
    """
    dice = random.Random(seed)
    left = load * slots * DAY
    found = []
    while left > 0:
        batch = _batch(len(found), slots, dice)
        found.append(batch)
        left -= sum(batch.lengths)
    return sorted(found, key=lambda batch: batch.at)


def _batch(number: int, slots: int, dice: random.Random) -> Batch:
    hour = dice.choices(range(24), _HOURS)[0]
    at = (hour + dice.random()) * 3_600
    count = max(1, round(slots * dice.lognormvariate(-1.5, 1.2)))
    batch = Batch(f"b{number}", at, list(_lengths(count, dice)))
    match number % 10:
        case 3:
            batch.cap = max(1, count // 12)
        case 7:
            batch.paused = (at + 600, at + 7_800)
    return batch


def _lengths(count: int, dice: random.Random) -> Iterator[float]:
    middle = math.log(MEAN_TASK_SECONDS) - _SPREAD**2 / 2
    for _ in range(count):
        yield min(max(dice.lognormvariate(middle, _SPREAD), 10.0), _LONGEST_TASK_SECONDS)
