"""Spans of an attempt, folded from its events: nested, timed, and without text."""

from __future__ import annotations

import pytest

from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import Claim, Lease
from zubble_queue.contracts.task import TaskInput

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is not installed")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from zubble_worker.spans import Tracing

SECRET = "canary-text"
TASK = TaskInput(
    task_id=identity.task_id("b", "a", 1),
    description=SECRET,
    allowed_tools=("shell",),
    success_criteria=SECRET,
    verify_command="true",
)
CLAIM = Claim(
    Lease(TASK.task_id, "b", 2, "0" * 32),
    TaskEnvelope(batch="b", source_id="a", task=TASK, model="m"),
    Usage(),
    0.0,
    None,
    0,
    "none",
)
USAGE = Usage(calls=1, prompt_tokens=10, completion_tokens=5, spend_micro_usd=1_500).model_dump()


def call(step, call_id, began, ended, finish="stop"):
    started = {"step": step, "call_id": call_id, "kind": "step", "max_tokens": 4_000, "cause": None}
    finished = {"step": step, "call_id": call_id, "finish": finish, "usage": USAGE, "text": SECRET}
    return [(began, "call_started", started), (ended, "call_finished", finished)]


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    """The spans that become of events, by name, in the order in which they ended."""

    def make(*events, how="sealed", outcome="verified"):
        tracing = Tracing("w-1", exporter)
        attempt = tracing.attempt(CLAIM)
        for time, type_, data in events:
            attempt.happened(Event(seq=1, time=time, attempt=2, type=type_, data=data))
        attempt.end(how, outcome)
        tracing.flush()
        return exporter.get_finished_spans()

    return make


def seconds(span):
    return (span.end_time - span.start_time) / 1e9


def test_a_call_and_a_command_are_in_their_step_and_steps_in_the_attempt(spans):
    command = {"step": 1, "seconds": 3.0, "exit_code": 0, "command": SECRET, "tool": "shell", "signal": None}
    made = spans(
        (9.0, "sandbox_opened", {"backend": "bubblewrap", "seconds": 0.5}),
        *call(1, "2.1", 10.0, 14.0),
        (20.0, "command_finished", command),
        *call(2, "2.2", 21.0, 22.0),
    )

    by_id = {span.context.span_id: span for span in made}
    paths = sorted((span.name, by_id[span.parent.span_id].name if span.parent else "") for span in made)
    assert paths == [
        ("attempt", ""),
        ("chat", "step"),
        ("chat", "step"),
        ("command", "step"),
        ("open sandbox", "attempt"),
        ("step", "attempt"),
        ("step", "attempt"),
    ]
    [first, _] = [span for span in made if span.name == "chat"]
    [ran] = [span for span in made if span.name == "command"]
    assert (seconds(first), first.attributes["gen_ai.usage.input_tokens"]) == (4.0, 10)
    assert (seconds(ran), ran.attributes["zubble.exit_code"]) == (3.0, 0)
    assert len({span.context.trace_id for span in made}) == 1
    assert SECRET not in "".join(span.to_json() for span in made)


def test_an_attempt_says_whose_it_is_and_how_it_ended(spans):
    [attempt] = spans((1.0, "stopped", {"stop": "submitted", "reason": SECRET}))

    assert dict(attempt.attributes) == {
        "zubble.task_id": TASK.task_id,
        "zubble.batch": "b",
        "zubble.attempt": 2,
        "zubble.stop": "submitted",
        "zubble.end": "sealed",
        "zubble.outcome": "verified",
    }
    assert attempt.resource.attributes["service.instance.id"] == "w-1"


def test_what_was_open_when_an_attempt_was_left_has_an_end(spans):
    began, _ = call(1, "2.1", 10.0, 11.0)

    made = spans(began, how="dropped", outcome=None)

    assert sorted(span.name for span in made) == ["attempt", "chat", "step"]
    assert all(span.end_time for span in made)


def test_a_call_that_failed_is_marked(spans):
    made = spans(*call(1, "2.1", 1.0, 2.0, finish="error"))

    assert [span.status.status_code for span in made if span.name == "chat"] == [StatusCode.ERROR]
