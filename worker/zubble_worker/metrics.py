"""What a worker counts for Prometheus. Labels are names from settings and from our own code, never a task's.

So the number of series is bounded by models x pools x outcomes, and no text of a task, model or command can
be in one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import Counter, Gauge, Histogram

from zubble_queue.contracts.books import Listener
from zubble_queue.contracts.ending import MICRO, Ending, Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model import TryEnd
from zubble_worker.registries import registry_of

_WAIT_BUCKETS: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 86_400)
_CALL_BUCKETS: Final = (0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
_OPEN_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 180)
_TOKENS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


class WorkerMetrics:
    """The metrics of one worker process, in a registry of their own; to be touched from any thread.

    Args:
        pools: That it serves.
        models: That it calls; what else a message or record may name is counted as `other`.
    """

    def __init__(self, pools: Collection[str] = (), models: Collection[str] = ()) -> None:
        self._pools, self._models = frozenset(pools), frozenset(models)
        self.registry = registry = registry_of()
        self._sealed = Counter(
            "zubble_tasks_sealed",
            "Tasks that attempts sealed.",
            ("pool", "model", "outcome"),
            registry=registry,
        )
        self._attempts = Counter(
            "zubble_attempts", "Messages taken, by what became of them.", ("end",), registry=registry
        )
        self._leases_lost = Counter(
            "zubble_leases_lost", "Attempts that found their lease taken away.", registry=registry
        )
        self._queue_wait = Histogram(
            "zubble_queue_wait_seconds",
            "From submission, or from the last attempt's end, to the claim.",
            ("pool",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._phases = Counter(
            "zubble_phase_seconds", "Time of sealed tasks by phase.", ("phase",), registry=registry
        )
        self._calls = Counter(
            "zubble_model_calls", "Model calls by how they ended.", ("model", "finish"), registry=registry
        )
        self._call_seconds = Histogram(
            "zubble_model_call_seconds",
            "Model calls, from connect to the last byte.",
            ("model",),
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._tries = Counter(
            "zubble_provider_tries",
            "Tries at a provider; `throttled` is a 429.",
            ("model", "end"),
            registry=registry,
        )
        self._tokens = Counter("zubble_tokens", "Tokens as settled.", ("model", "kind"), registry=registry)
        self._tokens_saved = Counter(
            "zubble_tokens_saved",
            "What cut streams could still have produced.",
            ("model",),
            registry=registry,
        )
        self._spend = Counter("zubble_spend_usd", "Money as settled.", ("model",), registry=registry)
        self._repetition = Counter(
            "zubble_repetition_thresholds",
            "Thresholds that text in a stream reached, by what was done.",
            ("channel", "action"),
            registry=registry,
        )
        self._signals = Counter(
            "zubble_detector_signals",
            "What the detectors of actions said, by what was done.",
            ("detector", "measure"),
            registry=registry,
        )
        self._commands = Counter("zubble_commands", "Commands of agents.", ("result",), registry=registry)
        self._opened = Histogram(
            "zubble_sandbox_open_seconds",
            "Opening a sandbox, with the task's files in it.",
            ("backend",),
            buckets=_OPEN_BUCKETS,
            registry=registry,
        )
        self._sandbox_failures = Counter(
            "zubble_sandbox_failures",
            "Sandboxes that failed while they were opened or used.",
            ("backend",),
            registry=registry,
        )
        self._slots = Gauge("zubble_worker_slots", "Attempts this process may run.", registry=registry)
        self._busy = Gauge("zubble_worker_busy_slots", "Attempts it runs.", registry=registry)
        self._draining = Gauge("zubble_worker_draining", "1 from SIGTERM on.", registry=registry)
        self._lag = Gauge(
            "zubble_event_loop_lag_seconds", "Worst delay in the last minute of work.", registry=registry
        )

    def watch(self, *, slots: int, busy: Callable[[], int], draining: Callable[[], bool]) -> None:
        """Ask these whenever somebody looks."""
        self._slots.set(slots)
        self._busy.set_function(busy)
        self._draining.set_function(lambda: float(draining()))

    def lag(self, seconds: float) -> None:
        self._lag.set(seconds)

    def claimed(self, pool: str, waited_seconds: float) -> None:
        """A task was taken."""
        self._queue_wait.labels(_one_of(self._pools, pool)).observe(waited_seconds)

    def ended(self, pool: str, model: str, how: str, ending: Ending | None) -> None:
        """A message was sealed, released or dropped; the ending, where the task was sealed here."""
        self._attempts.labels(how).inc()
        if ending is None:
            return
        named = (_one_of(self._pools, pool), _one_of(self._models, model))
        self._sealed.labels(*named, ending.outcome).inc()
        for phase, seconds in ending.seconds.items():
            self._phases.labels(phase).inc(seconds)

    def lease_lost(self) -> None:
        self._leases_lost.inc()

    def tried(self, model: str, end: TryEnd) -> None:
        self._tries.labels(model, end.kind).inc()

    def sandbox_failed(self, backend: str) -> None:
        self._sandbox_failures.labels(backend).inc()

    def of_model(self, model: str) -> Listener:
        """Counts what comes on the books of an attempt with this model."""
        return _OfModel(self, _one_of(self._models, model))

    def settled(self, model: str, usage: Usage) -> None:
        for kind in _TOKENS:
            if count := getattr(usage, kind):
                self._tokens.labels(model, kind.removesuffix("_tokens")).inc(count)
        self._spend.labels(model).inc(usage.spend_micro_usd / MICRO)

    def happened(self, model: str, event: Event) -> None:
        data = event.data
        match event.type:
            case "call_finished":
                self._call_finished(model, data)
            case "signal":
                self._signals.labels(data["detector"], data["measure"]).inc()
            case "command_finished":
                self._commands.labels(_result(data)).inc()
            case "sandbox_opened":
                self._opened.labels(data["backend"]).observe(data["seconds"])
            case _:
                pass

    def _call_finished(self, model: str, data: Mapping[str, Any]) -> None:
        self._calls.labels(model, data["finish"]).inc()
        self._call_seconds.labels(model).observe(data["seconds"])
        self._tokens_saved.labels(model).inc(data["tokens_saved"])
        for fired in data["repetition"]:
            self._repetition.labels(fired["channel"], fired["action"]).inc()


@dataclass(frozen=True, slots=True)
class _OfModel:
    metrics: WorkerMetrics
    model: str

    def happened(self, event: Event) -> None:
        self.metrics.happened(self.model, event)

    def settled(self, usage: Usage) -> None:
        self.metrics.settled(self.model, usage)


def _one_of(known: Collection[str], name: str) -> str:
    return name if name in known else "other"


def _result(data: Mapping[str, Any]) -> str:
    if data["timed_out"]:
        return "timed_out"
    if data["oom"]:
        return "oom"
    return "succeeded" if data["exit_code"] == 0 else "failed"
