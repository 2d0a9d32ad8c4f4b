"""Faults spread over the work, one after the other while tasks end; and the wait for the rest."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from redis import exceptions

from benchmarks.chaos.place import NoTarget, Place

P = TypeVar("P", bound=Place)
Fault = Callable[[P], Awaitable[str]]

ASIDE: Final = frozenset(
    {"worker_stopped", "worker_dozed", "stopped_before_call", "short_grace", "clocks_apart"}
)
"""Kinds that take their time while other faults go on."""
_PATIENCE_LEASES: Final = 10
_PATIENCE_SECONDS: Final = 90.0
"""Without another end for so long, tasks that have none are lost."""
_STALL_LEASES: Final = 2
_POLL_SECONDS: Final = 0.1


@dataclass
class Course:
    """What was injected, when."""

    injected: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason to count: faults that were drawn and could not be injected."""
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        print(f"{self.seconds:7.1f} s  {text}", file=sys.stderr, flush=True)


async def inject(place: P, plan: list[str], faults: Mapping[str, Fault[P]], course: Course) -> None:
    """All faults of the plan, each when its share of the tasks has come to an end."""
    aside: list[asyncio.Task[None]] = []
    for number, kind in enumerate(plan):
        await _until_due(place, number / len(plan))
        if kind in place.impossible:
            course.skipped[f"{kind}: {place.impossible[kind]}"] += 1
            continue
        strike = asyncio.create_task(_strike(place, kind, faults[kind], course))
        if kind in ASIDE:
            aside.append(strike)
        else:
            await strike
    await asyncio.gather(*aside)


async def until_finished(place: Place, tasks: int, course: Course) -> None:
    """Every task, or nothing more for too long."""
    patience = max(_PATIENCE_SECONDS, _PATIENCE_LEASES * place.lease)
    before, since = 0, time.monotonic()
    while before < tasks:
        finished = await place.finished() or 0
        if finished > before:
            before, since = finished, time.monotonic()
        elif time.monotonic() - since > patience:
            course.say(f"no task ended for {patience:g} s; {tasks - before} are left")
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _strike(place: P, kind: str, fault: Fault[P], course: Course) -> None:
    course.say(f"{kind} …")
    try:
        said = await fault(place)
    except NoTarget as missed:
        course.skipped[f"{kind}: {missed}"] += 1
        course.say(f"{kind} hit nothing: {missed}")
    except (exceptions.RedisError, RuntimeError) as failed:
        course.skipped[f"{kind}: {type(failed).__name__}"] += 1
        course.say(f"{kind} failed: {failed}")
    else:
        course.injected[kind] += 1
        course.say(f"{kind}: {said}")


async def _until_due(place: Place, share: float) -> None:
    """Faults are spread evenly over the ends; where those stall, the next one comes all the same."""
    latest = time.monotonic() + _STALL_LEASES * place.lease
    while time.monotonic() < latest:
        finished = await place.finished()
        if finished is not None and finished >= share * place.options.tasks:
            return
        await asyncio.sleep(_POLL_SECONDS)
