"""OpenTelemetry spans of attempts, made of their events: attempt > step > model call or command.

Attributes are ids, names and numbers; no text of a task, model or command is in one. Where spans are sent is
said by OpenTelemetry's own variables, as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from zubble_queue import __version__
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import Claim

_NANO: Final = 1_000_000_000
_TIMED: Final = {
    "sandbox_opened": "open sandbox",
    "preflight_finished": "preflight",
    "command_finished": "command",
    "verify_finished": "verify",
}
"""Events that say how many seconds what they end took, and the name of its span."""
_COPIED: Final = ("backend", "tool", "exit_code", "signal", "timed_out", "oom", "verdict")


class Tracing:
    """Sends the spans of one worker, in a thread of its own.

    Args:
        worker_id: Named as the instance.
        exporter: Where spans go; by default an OpenTelemetry collector, over HTTP.
    """

    def __init__(self, worker_id: str, exporter: SpanExporter | None = None) -> None:
        resource = Resource.create(
            {
                "service.name": "zubble-worker",
                "service.version": __version__,
                "service.instance.id": worker_id,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("zubble", __version__)

    def attempt(self, claim: Claim) -> AttemptSpans:
        """The spans of an attempt that begins now."""
        return AttemptSpans(self._tracer, claim)

    def flush(self) -> None:
        """Send what there is; waits as long as the collector does."""
        self._provider.force_flush()


class AttemptSpans:
    """Implements contracts.books.Listener."""

    def __init__(self, tracer: Tracer, claim: Claim) -> None:
        self._tracer, self._model = tracer, claim.envelope.model
        ids = {"task_id": claim.lease.task_id, "batch": claim.lease.batch, "attempt": claim.lease.epoch}
        self._attempt = tracer.start_span("attempt", attributes=_named(ids))
        self._step: tuple[int, Span] | None = None
        self._calls: dict[str, Span] = {}

    def happened(self, event: Event) -> None:
        data, at = event.data, _nano(event.time)
        match event.type:
            case "call_started":
                self._begin_call(data, at)
            case "call_finished" | "call_closed":
                self._end_call(data, at)
            case "stopped":
                self._attempt.set_attributes(_named({"stop": data["stop"]}))
            case timed if timed in _TIMED:
                self._timed(_TIMED[timed], data, at)
            case _:
                pass

    def settled(self, usage: Usage) -> None:
        """Nothing: what a call used is in the event that ends it."""

    def end(self, how: str, outcome: str | None) -> None:
        """The attempt was sealed, released or dropped."""
        for span in self._calls.values():
            span.end()
        if self._step:
            self._step[1].end()
        self._attempt.set_attributes(_named({"end": how, "outcome": outcome}))
        self._attempt.end()

    def _begin_call(self, data: Mapping[str, Any], at: int) -> None:
        if self._step is None or self._step[0] != data["step"]:
            if self._step:
                self._step[1].end(at)
            attributes = _named({"step": data["step"]})
            self._step = (data["step"], self._child("step", self._attempt, at, attributes))
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "gen_ai.request.max_tokens": data["max_tokens"],
            **_named({"call_id": data["call_id"], "kind": data["kind"]}),
        }
        self._calls[data["call_id"]] = self._child("chat", self._step[1], at, attributes)

    def _end_call(self, data: Mapping[str, Any], at: int) -> None:
        span = self._calls.pop(data["call_id"], None)
        if span is None:
            return
        usage, finish = data["usage"], data.get("finish", "error")
        span.set_attributes(
            {
                "gen_ai.response.finish_reasons": (finish,),
                "gen_ai.usage.input_tokens": usage["prompt_tokens"],
                "gen_ai.usage.output_tokens": usage["completion_tokens"],
                **_named({"spend_usd": usage["spend_micro_usd"] / 1_000_000}),
            }
        )
        if finish == "error":
            span.set_status(Status(StatusCode.ERROR))
        span.end(at)

    def _timed(self, name: str, data: Mapping[str, Any], at: int) -> None:
        parent = self._step[1] if self._step else self._attempt
        attributes = _named({key: data[key] for key in _COPIED if key in data})
        self._child(name, parent, at - _nano(data["seconds"]), attributes).end(at)

    def _child(self, name: str, parent: Span, at: int, attributes: Mapping[str, Any]) -> Span:
        return self._tracer.start_span(
            name, context=set_span_in_context(parent), start_time=at, attributes=attributes
        )


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """As attributes of ours; what is not known is left out."""
    return {f"zubble.{key}": value for key, value in values.items() if value is not None}


def _nano(seconds: float) -> int:
    return round(seconds * _NANO)
