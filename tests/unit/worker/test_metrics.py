"""Every metric is documented, labels hold nothing of a task, and the numbers are those of the books."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.ending import Ending, Stop, Usage, Verdict
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.need import Need
from zubble_queue.errors import StoreUnavailable
from zubble_queue.feeder import Feeder
from zubble_worker.metrics import WorkerMetrics
from zubble_worker.pool_metrics import BATCHES, FeederMetrics, PoolMetrics
from zubble_worker.registries import registry_of

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/metrics.md"
NEED = Need("default", "bubblewrap", "m")


def event(type_, **data):
    return Event(seq=1, time=1.0, attempt=1, type=type_, data=data)


def call(text="", finish="stop", repetition=(), tokens_saved=0):
    return event(
        "call_finished",
        finish=finish,
        seconds=2.0,
        tokens_saved=tokens_saved,
        repetition=list(repetition),
        text=text,
    )


@pytest.fixture
def metrics():
    return WorkerMetrics(pools=["default"], models=["m"])


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


def lanes(count):
    return tuple(Lane(f"b{n}", NEED, n + 1, 0, None, None, float(n)) for n in range(count))


def pools(*given):
    return registry_of(PoolMetrics(lambda: (Demand(given, {NEED: 2}, 1), ())))


def named(registry):
    """As Prometheus names them, with their labels."""
    for collector in registry._collector_to_names:
        for family in collector.describe() if hasattr(collector, "describe") else ():
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            yield family.name + ("_total" if family.type == "counter" else ""), frozenset(labels)


def test_every_metric_and_its_labels_are_documented(metrics):
    feeder = Feeder(None, None, holder="h")  # type: ignore[arg-type] # it is not run
    rows = re.findall(r"^\| `(zubble_\w+)` \|([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}

    of_dispatcher = registry_of(PoolMetrics(list), FeederMetrics(feeder))
    exported = {**dict(named(metrics.registry)), **dict(named(of_dispatcher))}

    assert exported.pop("zubble") == frozenset()  # the version
    assert exported == documented


def test_calls_are_counted_with_their_tokens_money_and_thresholds(metrics):
    attempt = metrics.of_model("m")
    fired = {"channel": "text", "action": "kill", "threshold": 3_000}
    attempt.happened(call(finish="cut", repetition=[fired], tokens_saved=700))
    attempt.settled(Usage(calls=1, prompt_tokens=10, completion_tokens=5, spend_micro_usd=250_000))

    registry = metrics.registry
    assert value(registry, "zubble_model_calls_total", model="m", finish="cut") == 1
    assert value(registry, "zubble_tokens_total", model="m", kind="prompt") == 10
    assert value(registry, "zubble_spend_usd_total", model="m") == 0.25
    assert value(registry, "zubble_tokens_saved_total", model="m") == 700
    assert value(registry, "zubble_repetition_thresholds_total", channel="text", action="kill") == 1


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"exit_code": 0}, "succeeded"),
        ({"exit_code": 1}, "failed"),
        ({"exit_code": None, "timed_out": True}, "timed_out"),
        ({"exit_code": None, "oom": True}, "oom"),
    ],
)
def test_commands_are_counted_by_how_they_ended(metrics, result, said):
    metrics.of_model("m").happened(event("command_finished", **{"timed_out": False, "oom": False, **result}))

    assert value(metrics.registry, "zubble_commands_total", result=said) == 1


def test_endings_are_counted_by_outcome_and_their_time_by_phase(metrics):
    ending = Ending(stop=Stop.SUBMITTED, verdict=Verdict.PASSED, seconds={"model": 3.0, "exec": 1.0})
    metrics.ended("default", "m", "sealed", ending)
    metrics.ended("default", "m", "dropped", None)
    metrics.tried("m", TryEnd("throttled"))

    registry = metrics.registry
    outcome = {"pool": "default", "model": "m", "outcome": "verified"}
    assert value(registry, "zubble_tasks_sealed_total", **outcome) == 1
    assert value(registry, "zubble_attempts_total", end="dropped") == 1
    assert value(registry, "zubble_phase_seconds_total", phase="model") == 3.0
    assert value(registry, "zubble_provider_tries_total", model="m", end="throttled") == 1


def test_names_that_a_forged_record_brings_make_one_series(metrics):
    for number in range(50):
        metrics.claimed(f"pool {number}", 1.0)
        metrics.of_model(f"model {number}").happened(call(text=f"secret {number}"))

    shown = [
        sample.labels
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name in {"zubble_queue_wait_seconds_count", "zubble_model_calls_total"}
    ]
    assert shown == [{"pool": "other"}, {"model": "other", "finish": "stop"}]


def test_batches_with_series_of_their_own_are_bounded_to_those_that_wait_longest():
    registry = pools(*lanes(BATCHES + 20))

    assert value(registry, "zubble_batches_left_out") == 20
    assert value(registry, "zubble_batch_backlog_tasks", batch="b0", pool="default") is None
    assert value(registry, "zubble_batch_backlog_tasks", batch="b119", pool="default") == 120
    assert value(registry, "zubble_batch_backlog_age_seconds", batch="b119", pool="default") == 119


def test_the_lanes_of_one_batch_are_one_series():
    other = Need("default", "docker", "m")
    registry = pools(*lanes(1), Lane("b0", other, 4, 1, None, None, 7.0))

    assert value(registry, "zubble_batch_backlog_tasks", batch="b0", pool="default") == 6
    assert value(registry, "zubble_pool_runnable_tasks", pool="default") == 6
    assert value(registry, "zubble_pool_running_tasks", pool="default") == 2


@pytest.mark.parametrize("trouble", [StoreUnavailable("gone"), TimeoutError("hangs")])
def test_without_redis_the_only_news_is_that(trouble):
    def state():
        raise trouble

    registry = registry_of(PoolMetrics(state))

    assert value(registry, "zubble_store_up") == 0
    assert value(registry, "zubble_delayed_tasks") is None


async def test_a_feeder_counts_what_it_did():
    stop = asyncio.Event()

    class Store:
        """Gone; the second who asks is the last."""

        asked = 0

        async def lead(self, *_):
            self.asked += 1
            if self.asked == 2:
                stop.set()
            raise StoreUnavailable("gone")

        async def resign(self, *_):
            raise StoreUnavailable("gone")

    feeder = Feeder(Store(), None, holder="h")  # type: ignore[arg-type] # all that it comes to
    registry = registry_of(FeederMetrics(feeder))
    await feeder.run(stop)

    assert value(registry, "zubble_feeder_failures_total") == 2
    assert value(registry, "zubble_feeder_leads") == 0
