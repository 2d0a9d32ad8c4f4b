"""The event loop's own delay, as the worker's log tells it."""

from __future__ import annotations

import asyncio
import time

import structlog

from zubble_worker.lag import watch_lag


async def lag_while(block_seconds: float, busy: int):
    stop = asyncio.Event()
    with structlog.testing.capture_logs() as logs:
        watching = asyncio.create_task(watch_lag(stop, lambda: busy))
        await asyncio.sleep(0.01)
        time.sleep(block_seconds)  # noqa: ASYNC251 - this is what is measured
        stop.set()
        await watching
    return [entry for entry in logs if entry["action"] == "loop_lag"]


async def test_a_loop_that_was_blocked_is_reported_with_how_long():
    [entry] = await lag_while(1.5, busy=3)

    assert entry["worst_seconds"] >= 1.0
    assert (entry["busy"], entry["log_level"]) == (3, "warning")


async def test_a_loop_on_which_nothing_ran_is_not_reported():
    assert await lag_while(0.0, busy=0) == []
