"""A reply that repeats itself: who is asked beside it, what that costs, and what the strict profile does."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.testing import structured_reply as say

SLOW_LOOP = {"text": [{"repeat": "truncated ", "times": 7_303}], "token_seconds": 0.0002}
BEGUN = '{"action": "run", "command": "true", "reasoning": "'
SLOW_STUTTER = {
    "text": [BEGUN, {"repeat": "again ", "times": 2_500}, '"}'],
    "token_seconds": 0.0002,
}
"""Past the confirmation gate, but well formed."""
MAKE = say("run", command="touch done.txt")
SUBMIT = say("submit", report="done")


def opinions(run):
    return [(data["purpose"], data["stuck"]) for data in run.books.of_type("opinion")]


async def test_a_confirmed_gate_ends_the_reply_before_the_last_rung(drive):
    run = await drive(SLOW_LOOP, opinion='{"stuck": true}', max_context_resets=0)

    assert run.stopped.stop is Stop.LOOP_TEXT
    assert (run.stopped.evidence["action"], run.stopped.evidence["threshold"]) == ("gate", 1_500)
    assert opinions(run) == [("self_check", True), ("gate", True)]
    (call,) = run.books.of_type("call_finished")
    assert [fired["threshold"] for fired in call["repetition"]] == [50, 500, 1_000, 1_500]


@pytest.mark.parametrize("stuck", ["true", '{"stuck": true}'])
async def test_a_self_check_alone_stops_nothing(drive, stuck):
    short = {**SLOW_STUTTER, "text": [BEGUN, {"repeat": "again ", "times": 1_000}, '"}']}
    run = await drive(short, MAKE, SUBMIT, opinion=stuck)

    assert run.stopped.stop is Stop.SUBMITTED
    assert opinions(run) == [("self_check", True)]


@pytest.mark.parametrize(
    ("answer", "stuck"),
    [
        ('{"stuck": false}', False),
        ("false", False),
        ('{"stuck": "true"}', None),
        ("Yes, it is stuck.", None),
        ("[" * 199, None),
        ({"text": "", "fault": {"kind": "status", "status": 500}}, None),
    ],
)
async def test_any_answer_but_yes_lets_the_reply_go_on(drive, answer, stuck):
    run = await drive(SLOW_STUTTER, MAKE, SUBMIT, opinion=answer)

    assert run.stopped.stop is Stop.SUBMITTED
    assert opinions(run) == [("self_check", stuck), ("gate", stuck)]


async def test_an_answer_that_does_not_come_lets_the_reply_go_on_and_is_paid_for(drive):
    silent = {"text": "true", "fault": {"kind": "stall"}}
    run = await drive(SLOW_STUTTER, MAKE, SUBMIT, opinion=silent)

    assert run.stopped.stop is Stop.SUBMITTED
    assert [data["detail"] for data in run.books.of_type("opinion")] == ["the reply ended first"] * 2
    assert all(data["usage"]["spend_micro_usd"] > 0 for data in run.books.of_type("opinion"))


async def test_an_answer_that_is_late_is_none(drive, monkeypatch):
    monkeypatch.setattr("zubble_worker.opinions.MOST_SECONDS", 0.05)
    silent = {"text": "true", "fault": {"kind": "stall"}}
    run = await drive(SLOW_STUTTER, MAKE, SUBMIT, opinion=silent)

    assert "no answer in 0.05 s" in [data["detail"] for data in run.books.of_type("opinion")]
    assert run.stopped.stop is Stop.SUBMITTED


async def test_the_question_holds_task_plan_counters_and_the_end_of_the_reply(drive):
    run = await drive(say("plan", steps=["make the file"]), SLOW_LOOP, opinion="true", max_context_resets=0)

    question = run.questions[-1]
    assert "Make the file done.txt." in question
    assert "[PENDING] make the file" in question
    assert "it repeats after 1 tokens each time" in question
    assert question.count("truncated") <= 60


async def test_what_was_asked_beside_the_stream_is_on_the_books(drive):
    run = await drive(SLOW_STUTTER, MAKE, SUBMIT, opinion="false")

    calls = [*run.books.of_type("call_finished"), *run.books.of_type("opinion")]
    assert sum(data["usage"]["spend_micro_usd"] for data in calls) == run.books.usage.spend_micro_usd
    assert sum(data["usage"]["calls"] for data in calls) == run.books.usage.calls == 5
    assert [data["call_id"] for data in run.books.of_type("opinion")] == ["1.1.2", "1.1.3"]
    assert {data["about"] for data in run.books.of_type("opinion")} == {"1.1.1"}
    causes = [data["cause"]["threshold"] for data in run.books.of_type("opinion")]
    assert causes == [500, 1_500]


async def test_a_budget_that_cannot_bear_an_opinion_goes_without(drive):
    run = await drive(SLOW_STUTTER, opinion="true", budget=LoopBudget(max_tokens=4_600))

    assert {data["detail"] for data in run.books.of_type("opinion")} == {"max_tokens=4600 exceeded"}
    assert not run.questions


async def test_the_warning_reaches_the_model_in_its_next_turn_before_the_nudge(drive):
    run = await drive(SLOW_STUTTER, MAKE, SUBMIT, opinion="false")

    warning = "[harness] STOP! Restart with fresh context or you will be terminated."
    nudge = "[harness] This note is from the harness"
    assert warning in run.prompts[1]
    assert run.prompts[1].index(warning) < run.prompts[1].index(nudge)
    assert run.books.of_type("call_finished")[0]["nudge_mode"] == "next_turn"
    assert run.books.of_type("call_finished")[1]["nudge_mode"] is None


BURST = {"text": ["no " * 8, {"repeat": "and so on. ", "times": 40}]}


async def test_the_strict_profile_makes_the_call_once_more_and_says_why(drive):
    run = await drive(BURST, repetition="strict", max_context_resets=0)

    started = run.books.of_type("call_started")
    assert [data["kind"] for data in started[:2]] == ["step", "restart"]
    assert started[1]["cause"]["action"] == "restart"
    assert run.books.of_type("call_finished")[0]["finish"] == "cut"
    assert run.books.of_type("call_finished")[1]["finish"] == "stop"


async def test_the_default_profile_restarts_nothing(drive):
    run = await drive(BURST, max_context_resets=0)

    assert "restart" not in [data["kind"] for data in run.books.of_type("call_started")]
