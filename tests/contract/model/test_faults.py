"""What every model promises when the endpoint fails: before anything was delivered, and after."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from zubble_queue.errors import ModelUnavailable

TEN_WORDS = "one two three four five six seven eight nine ten eleven twelve"


def faulty(kind, **fault):
    return {"text": TEN_WORDS, "fault": {"kind": kind, **fault}}


def causes(retries):
    return [retry.cause for retry in retries]


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_a_status_that_passes_is_tried_again_and_the_retry_is_on_record(bench, status):
    await bench.play(faulty("status", status=status, first_tries=2))
    reply = await bench.ask()
    assert (reply.text, reply.finish) == (TEN_WORDS, "stop")
    assert causes(reply.retries) == [f"http {status}"] * 2
    assert [retry.attempt for retry in reply.retries] == [1, 2]


async def test_refused_tries_cost_nothing(bench):
    await bench.play(faulty("status", status=503, first_tries=2))
    usage = (await bench.ask()).usage
    assert (usage.calls, usage.estimated_calls, usage.prompt_tokens) == (1, 0, 12)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 501])
async def test_a_status_that_will_not_pass_is_permanent_and_not_tried_again(bench, status):
    await bench.play(faulty("status", status=status, message="no such thing"))
    with pytest.raises(ModelUnavailable, match=f"http {status}: no such thing") as caught:
        await bench.ask()
    assert caught.value.permanent
    assert caught.value.retries == ()


async def test_after_the_last_try_the_model_is_unavailable_for_now(bench):
    await bench.play(faulty("status", status=500, message="out of memory"))
    with pytest.raises(
        ModelUnavailable, match=r"'m' failed after 3 tries: http 500: out of memory"
    ) as caught:
        await bench.ask()
    assert not caught.value.permanent
    assert causes(caught.value.retries) == ["http 500", "http 500"]
    assert caught.value.usage is None


async def test_retry_after_in_seconds_is_waited_out(bench):
    await bench.play(faulty("status", status=429, retry_after="0.4", first_tries=1))
    started = time.monotonic()
    reply = await bench.ask()
    assert time.monotonic() - started >= 0.4
    assert reply.retries[0].waited_seconds >= 0.4


async def test_retry_after_as_a_date_is_waited_out(bench):
    then = datetime.now(UTC) + timedelta(seconds=2)
    await bench.play(faulty("status", status=503, retry_after=format_datetime(then), first_tries=1))
    reply = await bench.ask()
    assert reply.finish == "stop"
    assert datetime.now(UTC) >= then.replace(microsecond=0)


async def test_a_retry_after_beyond_the_longest_wait_ends_the_call_at_once(bench):
    await bench.play(faulty("status", status=429, retry_after="3600"))
    with pytest.raises(ModelUnavailable, match="http 429") as caught:
        await asyncio.wait_for(bench.ask(deadline_seconds=7_200), 60)
    assert not caught.value.permanent
    assert caught.value.retries == ()


async def test_no_wait_goes_beyond_the_deadline_of_the_call(bench):
    await bench.play(faulty("status", status=429, retry_after="30"))
    with pytest.raises(ModelUnavailable, match="http 429"):
        await bench.ask(deadline_seconds=5)


async def test_a_web_page_instead_of_json_is_permanent(bench):
    await bench.play(faulty("html"))
    with pytest.raises(ModelUnavailable, match="a web page instead of JSON") as caught:
        await bench.ask()
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("stall", "idle"),
        ("reset", "reset"),
        ("malformed", "malformed"),
        ("eof", None),
        ("error_event", "http 500"),
    ],
)
async def test_a_failure_before_the_first_piece_is_tried_again(bench, kind, cause):
    await bench.play(faulty(kind, first_tries=1))
    reply = await bench.ask()
    assert (reply.text, reply.finish) == (TEN_WORDS, "stop")
    assert len(reply.retries) == 1
    assert cause is None or causes(reply.retries) == [cause]


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("stall", "idle: nothing came for 0.3 s"),
        ("reset", "reset"),
        ("malformed", "malformed"),
        ("eof", ""),
        ("error_event", "http 500: scripted fault"),
    ],
)
async def test_a_failure_after_ten_tokens_ends_the_call_and_is_paid_for(bench, kind, detail):
    await bench.play(faulty(kind, after_tokens=10))
    reply = await bench.ask()
    assert (reply.finish, reply.retries) == ("error", ())
    assert detail in reply.detail
    assert reply.detail
    assert reply.text == "one two three four five six seven eight nine ten"
    assert reply.usage.estimated_calls == 1
    assert reply.usage.completion_tokens >= 10
    assert reply.usage.spend_micro_usd > 0


async def test_silence_that_lasts_past_the_deadline_ends_with_it_and_is_paid_for(bench):
    await bench.play(faulty("stall", after_tokens=10), idle_timeout_seconds=60)
    reply = await bench.ask(deadline_seconds=0.3)
    assert (reply.finish, reply.cut) == ("deadline", None)
    assert reply.usage.completion_tokens >= 10
    assert reply.usage.estimated_calls == 1


async def test_a_deadline_before_the_first_piece_pays_the_prompt(bench):
    await bench.play(faulty("stall"), idle_timeout_seconds=60)
    reply = await bench.ask(deadline_seconds=0.3)
    assert (reply.finish, reply.text) == ("deadline", "")
    assert reply.usage.prompt_tokens >= 12


async def test_a_slow_answer_that_goes_on_past_the_deadline_is_ended(bench):
    await bench.play({"text": [{"repeat": "word ", "times": 1_000}], "token_seconds": 0.02})
    reply = await bench.ask(deadline_seconds=0.4)
    assert reply.finish == "deadline"
    assert 0 < reply.extra["pieces"] < 1_000


async def test_tries_that_may_be_billed_are_on_the_books_of_the_answer(bench):
    await bench.play(faulty("stall", first_tries=2))
    usage = (await bench.ask()).usage
    assert usage.calls == 1
    assert usage.estimated_calls == 2
    assert usage.prompt_tokens >= 3 * 12


async def test_tries_that_may_be_billed_are_on_the_books_of_the_failure(bench):
    await bench.play(faulty("stall"))
    with pytest.raises(ModelUnavailable, match="after 3 tries: idle") as caught:
        await bench.ask()
    assert caught.value.usage.estimated_calls == 3
    assert caught.value.usage.prompt_tokens >= 3 * 12
    assert caught.value.usage.spend_micro_usd > 0
