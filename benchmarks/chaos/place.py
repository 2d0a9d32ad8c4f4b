"""What every installation under faults has, whichever queue it runs: a server, an endpoint, workers."""

from __future__ import annotations

import abc
import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.chaos import clocks
from benchmarks.chaos.crew import Attack, Crew
from benchmarks.chaos.endpoint import Endpoint
from benchmarks.chaos.options import Options
from benchmarks.chaos.server import Server

T = TypeVar("T")
_POLL_SECONDS: Final = 0.05


class NoTarget(Exception):
    """The fault found nothing to hit, within its time; one sentence."""


@dataclass
class Place(abc.ABC):
    """What faults hit."""

    options: Options
    folder: Path
    server: Server
    endpoint: Endpoint
    crew: Crew
    chance: random.Random
    impossible: dict[str, str] = field(default_factory=dict)
    """Kinds of faults that cannot be injected on this machine, and why."""

    @property
    def lease(self) -> float:
        return self.options.lease

    @abc.abstractmethod
    async def finished(self) -> int | None:
        """Tasks that have come to their end; None when the server does not say."""

    @abc.abstractmethod
    async def busy(self) -> set[int]:
        """Process ids of workers that have a task."""

    async def start(self) -> None:
        """Everything but the workers. Raises RuntimeError."""
        await self.server.start()
        await self.endpoint.start()
        try:
            self.crew.clock_shim = clocks.build(self.folder)
        except clocks.Unskewable as reason:
            self.impossible["clocks_apart"] = str(reason)

    async def stop(self) -> None:
        await self.crew.stop()
        await self.endpoint.stop()
        await self.server.stop()

    def struck(self, kind: str, began: float) -> None:
        """Remember an attack on the server that has just ended."""
        self.crew.attacks.append(Attack(kind, 0, began, time.time()))


async def wait_for(ask: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """The first truthy answer. Raises NoTarget."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := await ask():
            return answer
        await asyncio.sleep(_POLL_SECONDS)
    raise NoTarget(f"{what} within {seconds:g} s")


def clear_environment() -> None:
    """Nothing of the user's own installation reaches ours."""
    for name in [name for name in os.environ if name.startswith(("ZUBBLE_", "CELERY_"))]:
        del os.environ[name]
