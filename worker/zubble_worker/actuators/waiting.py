"""wait: first-class, so that an agent that must wait neither burns calls nor looks like a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from zubble_queue.contracts.sandbox import Sandbox, shell
from zubble_worker.actuators.arguments import Wait

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 10.0
_LEAST_COMMAND_SECONDS: Final = 0.1


async def wait(
    sandbox: Sandbox, asked: Wait, *, command_seconds: float, ready: Callable[[], Awaitable[None]]
) -> str:
    """Until the time is up, or the condition holds.

    Args:
        sandbox: Where the condition is tried, at growing intervals.
        asked: `seconds` within what is left to the run.
        command_seconds: The most that one try of the condition may take.
        ready: Returns once commands may run.
    """
    started = time.monotonic()
    deadline, pause = started + asked.seconds, _FIRST_PAUSE_SECONDS
    while asked.until:
        await ready()
        limit = max(min(command_seconds, deadline - time.monotonic()), _LEAST_COMMAND_SECONDS)
        tried = await sandbox.exec(shell(asked.until, timeout_seconds=limit))
        if tried.ok:
            return f"the condition holds after {time.monotonic() - started:.1f} s"
        if (left := deadline - time.monotonic()) <= 0:
            return f"waited {asked.seconds:g} s; the condition does not hold yet"
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    await asyncio.sleep(asked.seconds)
    return f"waited {asked.seconds:g} s"
