"""Lets a day pass: submissions come, an autoscaler decides, pods start and go, attempts begin and end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from benchmarks.autoscale.autoscaler import Autoscaler, Settings
from benchmarks.autoscale.day import DAY, Batch
from benchmarks.autoscale.pool import Pod, Pool, Run
from zubble_queue import scaling

SAMPLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What the autoscaler reads, and whether pods are told apart when one is to go."""

    name: str
    value: Callable[[Pool, float], float]
    """In pods."""
    told_apart: bool = True


def by_demand(pool: Pool, now: float) -> float:
    """What `/scaling` answers, by the product's own functions."""
    return scaling.pool_load("default", pool.demand(now), ()).value(pool.slots)


def by_waiting_list(pool: Pool, _now: float) -> float:
    """As KEDA's redis trigger: the length of a list, with a target of the slots of a pod."""
    return pool.waiting / pool.slots


RULES: Final = (
    Rule("running + runnable", by_demand),
    Rule("running + runnable, any pod goes", by_demand, told_apart=False),
    Rule("waiting list", by_waiting_list),
)


@dataclass(frozen=True, slots=True)
class World:
    """What all rules share."""

    slots: int
    start_seconds: float
    """From the creation of a pod to its first task: node, image, worker."""
    handover_seconds: float
    """What an agent does twice that goes on elsewhere: the command or call it was in."""
    drain_seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    time: float
    backlog: int
    """Runnable tasks."""
    pods: int
    pod_hours: float
    repeated_hours: float


class Simulation:
    """One rule's day, and as long after it as tasks are left."""

    def __init__(self, world: World, rule: Rule, settings: Settings) -> None:
        self._world, self._rule, self._settings = world, rule, settings
        self._pool = Pool(world.slots, world.handover_seconds, world.drain_seconds, world.seed)
        self._scaler = Autoscaler(settings)
        self._events: list[tuple[float, int, Callable[[float], object]]] = []
        self._numbers = count()
        self._left = 0
        self.samples: list[Sample] = []
        self.ended = 0.0

    def run(self, batches: Sequence[Batch]) -> None:
        """Until the day is over and every task is sealed; two days at most."""
        for batch in batches:
            self._left += len(batch.lengths)
            self._at(batch.at, lambda now, batch=batch: self._pool.submit(batch, now))
            if batch.paused:
                self._at(batch.paused[1], lambda _now: None)
        self._every(self._settings.polling_seconds, self._poll)
        self._every(self._settings.sync_seconds, self._sync)
        self._every(SAMPLE_SECONDS, self._sample)
        while self._events and (now := self._events[0][0]) < 2 * DAY:
            if now >= DAY and not self._left and not self._pool.pods:
                break
            heapq.heappop(self._events)[2](now)
            self._pool.fill(now, self._begun)
            self.ended = now
        self._pool.delete(len(self._pool.pods), self.ended, told_apart=True)

    def result(self) -> dict[str, Any]:
        """Figures of the day, JSON-able."""
        totals = self._pool.totals
        waits = sorted(totals.waits)
        return {
            "rule": self._rule.name,
            "tasks": totals.sealed,
            "tasks_left": self._left,
            "pod_hours": round(totals.pod_seconds / 3_600, 1),
            "busy_share": round(totals.busy_seconds / (totals.pod_seconds * self._world.slots), 3),
            "most_pods": max(sample.pods for sample in self.samples),
            "wait_seconds_median": _quantile(waits, 0.5),
            "wait_seconds_p95": _quantile(waits, 0.95),
            "handed_over": totals.handed_over,
            "repeated_hours": round(totals.repeated_seconds / 3_600, 2),
            "lost_hours_if_killed": round(totals.at_risk_seconds / 3_600, 1),
        }

    def _at(self, time: float, event: Callable[[float], object]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _every(self, seconds: float, event: Callable[[float], object], at: float = 0.0) -> None:
        def again(now: float) -> None:
            event(now)
            self._at(now + seconds, again)

        self._at(at, again)

    def _poll(self, now: float) -> None:
        pods = len(self._pool.pods)
        self._resize(self._scaler.poll(now, self._rule.value(self._pool, now), pods), now)

    def _sync(self, now: float) -> None:
        pods = len(self._pool.pods)
        self._resize(self._scaler.sync(now, self._rule.value(self._pool, now), pods), now)

    def _resize(self, wanted: int, now: float) -> None:
        missing = wanted - len(self._pool.pods)
        for _ in range(missing):
            pod = Pod(now)
            self._pool.pods[pod] = None
            self._at(now + self._world.start_seconds, lambda _now, pod=pod: self._ready(pod))
        if missing < 0:
            self._pool.delete(-missing, now, told_apart=self._rule.told_apart)

    def _ready(self, pod: Pod) -> None:
        if not pod.gone:
            self._pool.ready(pod)

    def _begun(self, run: Run) -> None:
        self._at(run.ends, lambda now: self._ended(run, now))

    def _ended(self, run: Run, now: float) -> None:
        if self._pool.end(run, now):
            self._left -= 1

    def _sample(self, now: float) -> None:
        totals, pods = self._pool.totals, self._pool.pods
        backlog = scaling.pool_load("default", self._pool.demand(now), ()).runnable
        pod_seconds = totals.pod_seconds + sum(now - pod.began for pod in pods)
        self.samples.append(
            Sample(now, backlog, len(pods), pod_seconds / 3_600, totals.repeated_seconds / 3_600)
        )


def _quantile(ascending: Sequence[float], share: float) -> float | None:
    return round(ascending[int(len(ascending) * share)], 1) if ascending else None


def days(
    world: World, settings: Settings, batches: Sequence[Batch], rules: Sequence[Rule] = RULES
) -> Iterator[Simulation]:
    """The same day under each rule."""
    for rule in rules:
        simulation = Simulation(world, rule, settings)
        simulation.run(batches)
        yield simulation
