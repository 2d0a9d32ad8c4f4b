"""Living through a silence of Redis: calls that wait for it, and a gate that keeps the agent still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from zubble_queue.errors import StoreUnavailable

T = TypeVar("T")
_LONGEST_PAUSE_SECONDS: Final = 2.0


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call that may be repeated until the store answers; whoever cannot wait so long cancels it."""
    trying = AsyncRetrying(
        retry=retry_if_exception_type(StoreUnavailable),
        wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE_SECONDS),
    )

    async def awaited() -> T:
        return await call()

    return await trying(awaited)


class Gate:
    """Closed while it is not known whether the attempt still owns its task; nothing is bought then.

    The time it was closed is not the agent's (C50).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open, self._shut = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._shut_at: float | None = None
        self._before = 0.0

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    @property
    def shut_seconds(self) -> float:
        """How long it has been closed, in all."""
        now = 0.0 if self._shut_at is None else self._clock() - self._shut_at
        return self._before + now

    def shut(self, *, since: float | None = None) -> None:
        """Close it; `since` is when the silence began, by the clock, if that was earlier."""
        if self._shut_at is None:
            self._shut_at = self._clock() if since is None else since
            self._open.clear()
            self._shut.set()

    def open(self) -> None:
        if self._shut_at is not None:
            self._before = self.shut_seconds
            self._shut_at = None
            self._shut.clear()
            self._open.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        await self._open.wait()

    async def unless_shut(self, work: Awaitable[T]) -> T | None:
        """The work's result, or None when the gate closed first; then the work has been cancelled."""
        working = asyncio.ensure_future(work)
        shutting = asyncio.ensure_future(self._shut.wait())
        try:
            await asyncio.wait({working, shutting}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            shutting.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
