"""What a dispatcher tells Prometheus about pools and batches, read from Redis when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zubble_queue import scaling
from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import StoreUnavailable
from zubble_queue.feeder import Feeder

BATCHES: Final = 100
"""The most that have series of their own: those that wait longest. The others are one number."""

State = tuple[Demand, Sequence[WorkerInfo]]

_POOLS: Final = {
    "running_tasks": "Tasks that hold a slot.",
    "runnable_tasks": "Waiting tasks that another worker would begin.",
    "workers": "Living workers.",
    "slots": "Their slots.",
    "busy_slots": "Slots that hold a task.",
    "backlog_age_seconds": "How long the first runnable task waits.",
}


class PoolMetrics(Collector):
    """Two replicas of the dispatcher say the same: take the maximum over them, not the sum.

    Args:
        state: The backlog and the living workers now; raises StoreUnavailable or TimeoutError.
    """

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        """The families without their values, for which nobody need be asked."""
        return [_up(0), *_pool_families(), *_batch_families()]

    def collect(self) -> Iterator[Metric]:
        """All families; only `zubble_store_up` while Redis does not answer."""
        try:
            demand, workers = self._state()
        except (StoreUnavailable, TimeoutError):
            yield _up(0)
            return
        yield _up(1)
        yield from _of_pools(demand, workers)
        yield from _of_batches(demand)


class FeederMetrics(Collector):
    """What the feeder in this process has done."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        tally = self._feeder.tally
        yield GaugeMetricFamily(
            "zubble_feeder_leads", "1 where the feeder of this process leads.", value=float(tally.leads)
        )
        yield CounterMetricFamily("zubble_tasks_announced", "Messages sent.", value=tally.announced)
        yield CounterMetricFamily(
            "zubble_feeder_failures", "Rounds of the feeder that failed.", value=tally.failures
        )
        reaped = CounterMetricFamily(
            "zubble_leases_reaped", "Leases of dead workers, by what became of the task.", labels=("result",)
        )
        reaped.add_metric(("requeued",), tally.requeued)
        reaped.add_metric(("stuck",), tally.stuck)
        yield reaped
        yield CounterMetricFamily(
            "zubble_census_mended", "Records, indexes and counters put right.", value=tally.mended
        )


def _up(value: float) -> Metric:
    return GaugeMetricFamily("zubble_store_up", "1 where Redis answers this process.", value=value)


def _pool_families() -> list[GaugeMetricFamily]:
    simple = [
        GaugeMetricFamily(f"zubble_pool_{name}", text, labels=("pool",)) for name, text in _POOLS.items()
    ]
    held = GaugeMetricFamily(
        "zubble_pool_held_tasks", "Waiting tasks that no worker would begin, by why.", labels=("pool", "why")
    )
    return [*simple, held, GaugeMetricFamily("zubble_delayed_tasks", "Tasks kept back after a failure.")]


def _of_pools(demand: Demand, workers: Sequence[WorkerInfo]) -> Iterator[Metric]:
    *simple, held, delayed = _pool_families()
    for pool in scaling.pools(demand, workers):
        load = scaling.pool_load(pool, demand, workers)
        values = (load.running, load.runnable, load.workers, load.slots, load.busy, load.oldest_seconds)
        for family, value in zip(simple, values, strict=True):
            family.add_metric((pool,), value)
        for why, count in load.held.items():
            held.add_metric((pool, why), count)
    delayed.add_metric((), demand.delayed)
    yield from (*simple, held, delayed)


def _batch_families() -> list[GaugeMetricFamily]:
    return [
        GaugeMetricFamily(
            "zubble_batch_backlog_tasks", "Waiting and announced tasks.", labels=("batch", "pool")
        ),
        GaugeMetricFamily(
            "zubble_batch_backlog_age_seconds", "How long its first task waits.", labels=("batch", "pool")
        ),
        GaugeMetricFamily("zubble_batches_left_out", f"Batches beyond the {BATCHES} that wait longest."),
    ]


def _of_batches(demand: Demand) -> Iterator[Metric]:
    tasks, age, left_out = _batch_families()
    oldest: dict[str, float] = {}
    for lane in demand.lanes:
        oldest[lane.batch] = max(oldest.get(lane.batch, 0.0), lane.oldest_seconds)
    shown = set(sorted(oldest, key=lambda batch: -oldest[batch])[:BATCHES])
    for (batch, pool), group in groupby(sorted(demand.lanes, key=_place), key=_place):
        if batch in shown:
            lanes = list(group)
            tasks.add_metric((batch, pool), sum(lane.waiting + lane.announced for lane in lanes))
            age.add_metric((batch, pool), max(lane.oldest_seconds for lane in lanes))
    left_out.add_metric((), len(oldest) - len(shown))
    yield from (tasks, age, left_out)


def _place(lane: Lane) -> tuple[str, str]:
    return lane.batch, lane.need.pool
