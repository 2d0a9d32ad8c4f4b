"""Whatever an endpoint does wrong, over real HTTP: event, budget and ending of the run are right."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import ModelUnavailable
from zubble_queue.testing import MemoryBooks, MockEndpoint, Script
from zubble_queue.testing import structured_reply as say

MAKE = say(
    "run", command="echo made > done.txt", reasoning="one two three four five six seven eight nine ten"
)
SUBMIT = say("submit", report="done.txt is there")
CONFIG = ModelConfig.model_validate(
    {
        "base_url": "http://127.0.0.1:1/v1",
        "model": "m",
        "price": {"input": 3, "output": 15},
        "retries": 1,
        "retry_base_seconds": 0,
        "idle_timeout_seconds": 0.3,
        "context": 32_000,
    }
)


@pytest.fixture
async def endpoint():
    async with MockEndpoint(Script.always("")) as started:
        yield started


@pytest.fixture
def run_with(drive, endpoint):
    """Make the file, with a first reply that goes wrong, and submit it."""

    async def run(reply=None, *, then=(MAKE, SUBMIT), **fault):
        first = reply or {"text": MAKE, "fault": fault}
        return await drive(first, *then, config=CONFIG, endpoint=endpoint)

    return run


def assert_books_agree(run, *, calls):
    """What the record says is what was charged, and nothing is reserved any more."""
    events = [*run.books.of_type("call_finished"), *run.books.of_type("opinion")]
    finished = [data["usage"] for data in events]
    assert run.books.usage.calls == sum(usage["calls"] for usage in finished) == calls
    assert run.books.usage.spend_micro_usd == sum(usage["spend_micro_usd"] for usage in finished)
    assert run.books.left().micro_usd == 5_000_000 - run.books.usage.spend_micro_usd


async def test_429_is_waited_out_as_asked_and_costs_nothing(run_with):
    run = await run_with(kind="status", status=429, retry_after="0.2", first_tries=1, then=[SUBMIT])

    call = run.books.of_type("call_finished")[0]
    assert [retry["cause"] for retry in call["retries"]] == ["http 429"]
    assert call["retries"][0]["waited_seconds"] >= 0.2
    assert call["usage"]["estimated_calls"] == 0
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=2)


@pytest.mark.parametrize(
    ("fault", "permanent"), [({"kind": "status", "status": 500}, False), ({"kind": "html"}, True)]
)
async def test_500_for_ever_and_a_web_page_are_the_providers_failure_and_cost_nothing(
    drive, endpoint, fault, permanent
):
    books = MemoryBooks(LoopBudget())
    with pytest.raises(ModelUnavailable) as failed:
        await drive({"text": MAKE, "fault": fault}, config=CONFIG, endpoint=endpoint, books=books)

    assert failed.value.permanent is permanent
    assert [event.type for event in books.events] == ["call_started"]
    assert books.usage.spend_micro_usd == 0
    assert len(endpoint.calls) == (1 if permanent else 2)


@pytest.mark.parametrize(("kind", "detail"), [("reset", "reset"), ("stall", "idle"), ("eof", "")])
async def test_a_stream_that_breaks_or_falls_silent_after_ten_tokens_is_paid_for_and_asked_for_again(
    drive, endpoint, kind, detail
):
    fault = {"kind": kind, "after_tokens": 10}
    untouched = {"when": {"contains": ", 50000 tokens"}, "turns": [{"text": MAKE, "fault": fault}]}
    run = await drive(MAKE, SUBMIT, rules=[untouched], config=CONFIG, endpoint=endpoint)

    broken, whole = run.books.of_type("call_finished")[:2]
    assert (broken["finish"], whole["finish"]) == ("error", "stop")
    assert detail in broken["detail"]
    assert broken["usage"]["estimated_calls"] == 1
    assert 10 <= broken["usage"]["completion_tokens"] <= 4_000
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=3)


async def test_bytes_that_are_not_utf8_are_marked_and_the_reply_is_used(run_with):
    run = await run_with(kind="invalid_utf8", after_tokens=35, then=[SUBMIT])

    assert "\ufffd" in run.books.of_type("call_finished")[0]["text"]
    assert run.books.of_type("format_error") == []
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=2)


async def test_ten_megabytes_in_one_piece_are_cut_as_the_loop_they_are_and_billed_at_max_tokens_at_most(
    drive, endpoint
):
    fault = {"kind": "big_chunk", "after_tokens": 3}
    run = await drive({"text": MAKE, "fault": fault}, fresh=[MAKE, SUBMIT], config=CONFIG, endpoint=endpoint)

    call = run.books.of_type("call_finished")[0]
    assert (call["finish"], call["repetition"][-1]["action"]) == ("cut", "kill")
    assert call["usage"]["completion_tokens"] <= 4_000
    assert [data["cause"] for data in run.books.of_type("context_reset")] == ["loop:text"]
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=3 + len(run.books.of_type("opinion")))


async def test_usage_that_is_missing_is_estimated_and_marked(run_with):
    run = await run_with({"text": MAKE, "usage": False}, then=[SUBMIT])

    assert [data["usage"]["estimated_calls"] for data in run.books.of_type("call_finished")] == [1, 0]
    assert run.books.usage.estimated_calls == 1
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=2)


async def test_a_reply_that_max_tokens_ended_is_repaired(run_with):
    run = await run_with({"text": MAKE[:30], "finish": "length"})

    assert run.books.of_type("call_finished")[0]["finish"] == "length"
    assert [data["kind"] for data in run.books.of_type("format_error")] == ["step"]
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=3)


async def test_a_tool_call_without_arguments_is_no_action_and_is_repaired(drive, endpoint):
    repaired = {"when": {"last_contains": "could not be used"}, "turns": [MAKE]}
    call = {"tool_calls": [{"name": "shell"}]}
    run = await drive(call, SUBMIT, rules=[repaired], config=CONFIG, endpoint=endpoint)

    assert run.books.of_type("call_finished")[0]["tool_calls"] == [["shell", ""]]
    assert [data["kind"] for data in run.books.of_type("format_error")] == ["step"]
    assert run.stopped.stop is Stop.SUBMITTED
    assert_books_agree(run, calls=3)
