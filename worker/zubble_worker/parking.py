"""Waiting for others: for the settlement that frees a ceiling, or for a place at the provider."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PARKED_SECONDS: Final = 3_600.0
"""The most one call waits; then its task goes back to the queue, charged with nothing."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0


class Parking:
    """How long an attempt has waited for others; that is not its own time (C50).

    Args:
        clock: Seconds, as in `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._before = 0.0
        self._taken = 0.0
        self.last = float("-inf")
        """When it last waited, by the clock."""

    @property
    def seconds(self) -> float:
        """In all, until now."""
        return self._before + (0.0 if self._since is None else self._clock() - self._since)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._before, self._since, self.last = self.seconds, None, self._clock()

    def take(self, least_seconds: float) -> float:
        """The seconds that were not taken yet; 0 where they are fewer than the least worth it."""
        fresh = self.seconds - self._taken
        if fresh < least_seconds:
            return 0.0
        self._taken = self.seconds
        return fresh


class Bell:
    """Rung at each settlement in this process; wakes the one that has waited longest."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Event] = deque()

    def ring(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()

    async def heard(self, timeout_seconds: float) -> None:
        """Return when it rings for the caller, or at the timeout: other processes ring their own."""
        event = asyncio.Event()
        self._waiting.append(event)
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            return
        finally:
            if event in self._waiting:
                self._waiting.remove(event)


def pause_seconds(tries: int) -> float:
    """The wait before asking again: growing, bounded, and no two agents' the same."""
    return random.uniform(0.5, 1.5) * min(_FIRST_PAUSE_SECONDS * 2.0**tries, _LONGEST_PAUSE_SECONDS)  # noqa: S311
