"""Rounds in which every case is timed once, so that all cases share the noise of the machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from zubble_queue.contracts.sandbox import MIB, Command, SandboxProvider, SandboxSpec
from zubble_sandbox.pool import WarmProvider

PROGRAM = "/bin/true"
BARE = "bare"
_WARM_SECONDS = 0.3
"""For the next sandbox to be opened ahead, outside of what is timed."""
_Made = TypeVar("_Made")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Row:
    """One case: times in milliseconds, and what they are as multiples of a bare spawn's."""

    backend: str
    case: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float
    """Of the medians."""
    ratio_p10: float
    """Of the tenth percentiles: less of what else the machine does is in them."""


class Stopwatch:
    """Seconds by (backend, case)."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)

    async def time(self, backend: str, case: str, work: Awaitable[_Made]) -> _Made:
        begun = time.perf_counter()
        made = await work
        self._seconds[backend, case].append(time.perf_counter() - begun)
        return made

    def spawn(self) -> None:
        """Start and await the program without anything around it."""
        begun = time.perf_counter()
        pid = os.posix_spawn(PROGRAM, [PROGRAM], {})
        os.waitpid(pid, 0)
        self._seconds[BARE, "spawn"].append(time.perf_counter() - begun)

    def rows(self) -> Iterator[Row]:
        bare = _spread(self._seconds[BARE, "spawn"])
        for (backend, case), seconds in self._seconds.items():
            spread = _spread(seconds)
            ratios = (round(spread[at] / bare[at], 2) for at in (0, 1))
            yield Row(backend, case, *(round(1_000 * value, 3) for value in spread), *ratios)


def _spread(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, first and last decile."""
    deciles = statistics.quantiles(seconds, n=10)
    return statistics.median(seconds), deciles[0], deciles[-1]


def spec() -> SandboxSpec:
    return SandboxSpec(
        name=f"benchmark-{os.getpid()}-{next(_numbers)}",
        owner=f"benchmark-{os.getpid()}",
        work_bytes=32 * MIB,
        max_life_seconds=600.0,
    )


class Runs(Protocol):
    """What a sandbox and its peers have in common."""

    async def exec(self, command: Command, /) -> Any: ...

    async def destroy(self) -> None: ...


class Opens(Protocol):
    async def open(self, spec: SandboxSpec, /) -> Runs: ...


async def measure(
    providers: Mapping[str, SandboxProvider], rounds: int, execs: int, peers: Mapping[str, Opens]
) -> list[Row]:
    """Open, run and destroy in each round and with each provider, cold and from a pool of one.

    Args:
        providers: By name; they have been probed.
        rounds: How often.
        execs: Commands in each sandbox.
        peers: What to compare with, by name; cold only.
    """
    watch = Stopwatch()
    pools = {name: WarmProvider(provider, 1) for name, provider in providers.items()}
    try:
        for pool in pools.values():
            await (await pool.open(spec())).destroy()
        for _ in range(rounds):
            for name, provider in providers.items():
                watch.spawn()
                await _cold(watch, name, provider, execs)
            for name, peer in peers.items():
                watch.spawn()
                await _cold(watch, name, peer, execs)
            await asyncio.sleep(_WARM_SECONDS)
            for name, pool in pools.items():
                sandbox = await watch.time(name, "warm open", pool.open(spec()))
                await sandbox.destroy()
    finally:
        for pool in pools.values():
            await pool.aclose()
    return sorted(watch.rows(), key=lambda row: (row.backend != BARE, row.backend))


async def _cold(watch: Stopwatch, name: str, provider: Opens, execs: int) -> None:
    sandbox = await watch.time(name, "open", provider.open(spec()))
    for _ in range(execs):
        watch.spawn()
        result = await watch.time(name, "exec", sandbox.exec(Command((PROGRAM,))))
        assert result.ok, result
    await watch.time(name, "destroy", sandbox.destroy())
