"""How many workers a pool should have: (running + runnable) / slots of a worker.

Running tasks count, so that a pool whose queue is empty is not taken away under its agents; a task counts as
runnable only while another worker would begin it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.contracts.demand import Demand, Held, Lane
from zubble_queue.contracts.record import WorkerInfo

SCHEMA: Final = "zubble.scaling/1"


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """One pool at one moment."""

    pool: str
    running: int
    runnable: int
    held: Mapping[Held, int] = field(default_factory=dict)
    """Waiting tasks that no further worker would begin, by why."""
    workers: int = 0
    slots: int = 0
    """Of its living workers; one that serves several pools counts in each of them."""
    busy: int = 0
    widest: int = 0
    """Slots of its largest living worker."""
    oldest_seconds: float = 0.0
    """How long the first runnable task waits that is not announced; 0 where there is none."""

    def value(self, slots_per_worker: int) -> float:
        """How many workers have slots for all that runs or could; not rounded."""
        return workers_wanted(self.running, self.runnable, slots_per_worker)

    def answer(self, slots_per_worker: int) -> dict[str, Any]:
        """As an autoscaler reads it."""
        return {
            "schema": SCHEMA,
            "pool": self.pool,
            "value": self.value(slots_per_worker),
            "running": self.running,
            "runnable": self.runnable,
            "held": dict(self.held),
            "slots_per_worker": slots_per_worker,
            "workers": self.workers,
            "slots": self.slots,
            "busy": self.busy,
        }


def workers_wanted(running: int, runnable: int, slots_per_worker: int) -> float:
    """The rule. Raises ValueError where a worker has no slot."""
    if slots_per_worker < 1:
        raise ValueError("a worker has at least one slot")
    return (running + runnable) / slots_per_worker


def pool_load(pool: str, demand: Demand, workers: Iterable[WorkerInfo]) -> PoolLoad:
    """What one pool has to do, and with what.

    The room that a batch's cap leaves is given to each of its pools whole: a pool that cannot grow must not
    keep another one small. What no living worker of the pool has is left out only while there is one; a pool
    without workers starts the first one for it.
    """
    crew = [worker for worker in workers if pool in worker.pools]
    served = {need for worker in crew for need in worker.needs} if crew else None
    held: Counter[Held] = Counter()
    runnable, oldest = 0, 0.0
    for lanes in _by_batch(lane for lane in demand.lanes if lane.need.pool == pool):
        waiting = announced = 0
        for lane in lanes:
            unserved = served is not None and lane.need.key not in served
            if why := lane.held or ("unserved" if unserved else None):
                held[why] += lane.waiting + lane.announced
                continue
            waiting, announced = waiting + lane.waiting, announced + lane.announced
            if lane.room != 0:
                oldest = max(oldest, lane.oldest_seconds)
        room = lanes[0].room
        begun = waiting if room is None else min(waiting, room)
        held["cap"] += waiting - begun
        runnable += begun + announced
    return PoolLoad(
        pool=pool,
        running=sum(count for need, count in demand.running.items() if need.pool == pool),
        runnable=runnable,
        held={why: count for why, count in sorted(held.items()) if count},
        workers=len(crew),
        slots=sum(worker.slots for worker in crew),
        busy=sum(worker.busy for worker in crew),
        widest=max((worker.slots for worker in crew), default=0),
        oldest_seconds=oldest,
    )


def pools(demand: Demand, workers: Iterable[WorkerInfo]) -> list[str]:
    """Every pool that has work or workers, sorted."""
    asked = {lane.need.pool for lane in demand.lanes} | {need.pool for need in demand.running}
    return sorted(asked | {pool for worker in workers for pool in worker.pools})


def _by_batch(lanes: Iterable[Lane]) -> list[Sequence[Lane]]:
    found: dict[str, list[Lane]] = {}
    for lane in lanes:
        found.setdefault(lane.batch, []).append(lane)
    return list(found.values())
