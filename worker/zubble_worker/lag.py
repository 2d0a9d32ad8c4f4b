"""How late the worker's event loop is: what all leases and streams of the process depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

_log = structlog.get_logger(__name__)
_SAMPLE_SECONDS: Final = 0.25
REPORT_SECONDS: Final = 60.0
LATE_SECONDS: Final = 1.0
"""From here on it is a warning: renewals, a quarter of a lease apart, have time; streams do not."""


async def watch_lag(
    stop: asyncio.Event, busy: Callable[[], int], tell: Callable[[float], object] = lambda _: None
) -> None:
    """Log the worst delay of each minute in which something ran, and of the last one when told to stop.

    Args:
        stop: Ends it.
        busy: How many attempts run.
        tell: Called with the same delay.
    """
    loop = asyncio.get_running_loop()
    worst, most, began = 0.0, 0, loop.time()
    while not stop.is_set():
        asked = loop.time()
        await asyncio.sleep(_SAMPLE_SECONDS)
        worst, most = max(worst, loop.time() - asked - _SAMPLE_SECONDS), max(most, busy())
        if stop.is_set() or loop.time() - began >= REPORT_SECONDS:
            _report(worst, most)
            tell(worst if most else 0.0)
            worst, most, began = 0.0, 0, loop.time()


def _report(worst: float, busy: int) -> None:
    if busy:
        say = _log.warning if worst >= LATE_SECONDS else _log.info
        say("event loop lag", action="loop_lag", worst_seconds=round(worst, 3), busy=busy)
