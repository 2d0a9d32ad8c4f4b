"""A pool of worker pods with slots, the tasks in them, and those that wait."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from benchmarks.autoscale.day import Batch
from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.need import Need

NEED: Final = Need("default", "bubblewrap", "model")


@dataclass(slots=True, eq=False)
class Pod:
    """One worker."""

    began: float
    ready: bool = False
    gone: bool = False
    running: dict[Run, None] = field(default_factory=dict)
    """In order, so that the same day is the same each time."""
    place: int = -1
    """In the list of those with a free slot; -1: in none."""


@dataclass(slots=True, eq=False)
class Run:
    """One attempt."""

    pod: Pod
    lot: Lot
    began: float
    ends: float


@dataclass(slots=True, eq=False)
class Lot:
    """A batch while its tasks wait and run."""

    batch: Batch
    waiting: deque[tuple[float, float]]
    """Since when, and for how long a slot is needed."""
    running: int = 0

    @property
    def held_by_owner(self) -> bool:
        """Whether workers are not all it waits for."""
        return self.batch.cap is not None or self.batch.paused is not None

    def room(self) -> int | None:
        return None if self.batch.cap is None else max(self.batch.cap - self.running, 0)

    def paused(self, now: float) -> bool:
        return self.batch.paused is not None and self.batch.paused[0] <= now < self.batch.paused[1]

    def may_begin(self, now: float) -> bool:
        return bool(self.waiting) and self.room() != 0 and not self.paused(now)


@dataclass(slots=True)
class Totals:
    """What a day came to."""

    pod_seconds: float = 0.0
    busy_seconds: float = 0.0
    """Of slots."""
    sealed: int = 0
    waits: list[float] = field(default_factory=list)
    """From a task's submission, or its handover, to a slot; without capped and paused batches."""
    handed_over: int = 0
    repeated_seconds: float = 0.0
    """Of slots: what handed-over agents did twice."""
    at_risk_seconds: float = 0.0
    """Of slots: what they had done, and would be lost if pods were only killed."""


class Pool:
    """Tells its owner when an attempt begins; its owner says when it ends."""

    def __init__(self, slots: int, handover_seconds: float, drain_seconds: float, seed: int) -> None:
        self.slots, self._handover, self._drain = slots, handover_seconds, drain_seconds
        self.pods: dict[Pod, None] = {}
        self.totals = Totals()
        self._free: list[Pod] = []
        self._lots: deque[Lot] = deque()
        self._dice = random.Random(seed)

    @property
    def running(self) -> int:
        return sum(lot.running for lot in self._lots)

    @property
    def waiting(self) -> int:
        """All that waits, whether or not it may begin: the length of a list."""
        return sum(len(lot.waiting) for lot in self._lots)

    def demand(self, now: float) -> Demand:
        """As the store tells it."""
        lanes = [
            Lane(
                lot.batch.name,
                NEED,
                len(lot.waiting),
                announced=0,
                held="paused" if lot.paused(now) else None,
                room=lot.room(),
                oldest_seconds=now - lot.waiting[0][0],
            )
            for lot in self._lots
            if lot.waiting
        ]
        return Demand(tuple(lanes), {NEED: self.running}, delayed=0)

    def submit(self, batch: Batch, now: float) -> None:
        self._lots.append(Lot(batch, deque((now, length) for length in batch.lengths)))

    def ready(self, pod: Pod) -> None:
        """It takes tasks from now on."""
        pod.ready = True
        self._offer(pod)

    def fill(self, now: float, begun: Callable[[Run], object]) -> None:
        """Give free slots to batches in turn, and to any worker: whoever has one free takes a message."""
        turns = len(self._lots)
        while self._free and turns:
            lot = self._lots[0]
            self._lots.rotate(-1)
            if not lot.may_begin(now):
                turns -= 1
                continue
            turns = len(self._lots)
            pod = self._free[self._dice.randrange(len(self._free))]
            since, length = lot.waiting.popleft()
            run = Run(pod, lot, now, now + length)
            pod.running[run] = None
            lot.running += 1
            if not lot.held_by_owner:
                self.totals.waits.append(now - since)
            if len(pod.running) == self.slots:
                self._withdraw(pod)
            begun(run)

    def end(self, run: Run, now: float) -> bool:
        """Whether it was still running; then its task is sealed."""
        if run not in run.pod.running:
            return False
        self._leave(run, now)
        self.totals.sealed += 1
        if not run.lot.waiting and not run.lot.running:
            self._lots.remove(run.lot)
        return True

    def delete(self, count: int, now: float, *, told_apart: bool) -> None:
        """Pods that are not ready go first; then those with the fewest agents, or any."""
        order = {
            pod: (pod.ready, len(pod.running) if told_apart else self._dice.random()) for pod in self.pods
        }
        for pod in heapq.nsmallest(count, order, key=order.__getitem__):
            self._evict(pod, now)

    def _evict(self, pod: Pod, now: float) -> None:
        """What ends within the drain ends here; the rest is saved and goes first elsewhere."""
        del self.pods[pod]
        pod.gone = True
        if pod.place >= 0:
            self._withdraw(pod)
        staying = [run for run in pod.running if run.ends > now + self._drain]
        last = self._drain if staying else max((run.ends - now for run in pod.running), default=0.0)
        for run in staying:
            done = now + self._drain - run.began
            repeated = min(self._handover, done)
            self._leave(run, now + self._drain)
            run.lot.waiting.appendleft((now, run.ends - now - self._drain + repeated))
            self.totals.handed_over += 1
            self.totals.repeated_seconds += repeated
            self.totals.at_risk_seconds += done
        self.totals.pod_seconds += now + last - pod.began

    def _leave(self, run: Run, now: float) -> None:
        del run.pod.running[run]
        run.lot.running -= 1
        self.totals.busy_seconds += now - run.began
        if run.pod.place < 0 and not run.pod.gone:
            self._offer(run.pod)

    def _offer(self, pod: Pod) -> None:
        pod.place = len(self._free)
        self._free.append(pod)

    def _withdraw(self, pod: Pod) -> None:
        last = self._free.pop()
        if last is not pod:
            self._free[pod.place], last.place = last, pod.place
        pod.place = -1
