"""Every stop and verdict have one outcome, and every outcome fills the contract's output."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from zubble_queue.contracts.ending import UNVERIFIED_STOPS, Ending, Stop, Usage, Verdict
from zubble_queue.contracts.task import TaskInput

OUTCOME_WITHOUT_A_PASS = {
    "submitted": "failed",
    "gave_up": "failed",
    "limit:iterations": "limit:iterations",
    "limit:tokens": "limit:tokens",
    "limit:wallclock": "limit:wallclock",
    "limit:spend": "limit:spend",
    "limit:allowed_tools": "limit:allowed_tools",
    "limit:context": "limit:context",
    "limit:max_steps": "limit:max_steps",
    "limit:max_turn_secs": "limit:max_turn_secs",
    "limit:batch_spend": "limit:batch_spend",
    "limit:tenant_spend": "limit:tenant_spend",
    "loop:text": "loop:text",
    "loop:action": "loop:action",
    "loop:stall": "loop:stall",
    "parse_error": "parse_error",
    "blocked": "blocked",
    "model_stop": "model_stop",
    "stuck": "stuck",
    "infra": "infra",
    "invalid": "invalid",
    "cancelled": "cancelled",
}
LABELS = [
    "task_id",
    "description",
    "iterations_used",
    "tokens_used",
    "spend_usd",
    "files_touched",
    "lines_added",
    "lines_removed",
    "aborted",
]


def test_the_table_knows_every_stop():
    assert set(OUTCOME_WITHOUT_A_PASS) == {stop.value for stop in Stop}


@pytest.mark.parametrize(("stop", "verdict"), [*itertools.product(Stop, Verdict)])
def test_the_outcome_follows_from_stop_and_verdict(stop: Stop, verdict: Verdict):
    expected = "verified" if verdict == "passed" else OUTCOME_WITHOUT_A_PASS[stop.value]
    ending = Ending(stop=stop, verdict=verdict)
    assert ending.outcome == expected
    assert ending.aborted is (expected not in {"verified", "failed"})


def test_a_run_that_hit_its_limit_with_a_passing_tree_has_passed(make_task: Callable[..., TaskInput]):
    ending = Ending(stop=Stop.LIMIT_ITERATIONS, verdict=Verdict.PASSED)
    output = ending.output(make_task())
    assert (ending.outcome, output.verify_passed, output.aborted) == ("verified", True, False)
    assert output.abort_reason is None


def test_a_submission_whose_check_broke_is_a_failure_not_an_abort(make_task: Callable[..., TaskInput]):
    output = Ending(stop=Stop.SUBMITTED, verdict=Verdict.ERROR).output(make_task())
    assert (output.verify_passed, output.aborted) == (False, False)


def test_an_aborted_run_says_why(make_task: Callable[..., TaskInput]):
    told = Ending(stop=Stop.LIMIT_TOKENS, reason="max_tokens=50000 exceeded").output(make_task())
    assert told.abort_reason == "max_tokens=50000 exceeded"
    untold = Ending(stop=Stop.LOOP_TEXT).output(make_task())
    assert untold.abort_reason == "loop:text"


def test_nothing_is_judged_after_a_stop_without_a_work_tree():
    assert {"cancelled", "infra", "invalid", "stuck"} == UNVERIFIED_STOPS


@pytest.fixture
def ending() -> Ending:
    return Ending(
        stop=Stop.LIMIT_SPEND,
        reason="max_spend_usd=5.0 exceeded",
        usage=Usage(calls=3, prompt_tokens=1_000, completion_tokens=234, spend_micro_usd=1_234_567),
        iterations_used=3,
        files_touched=("a.py", "b.py"),
        lines_added=12,
        lines_removed=4,
    )


def test_the_output_carries_what_the_ending_counted(ending: Ending, make_task: Callable[..., TaskInput]):
    task = make_task()
    output = ending.output(task)
    assert output.task_id == task.task_id
    assert output.files_touched == ("a.py", "b.py")
    assert (output.lines_added, output.lines_removed, output.iterations_used) == (12, 4, 3)
    assert output.spend_usd == 1.234567


def test_the_worklog_entry_has_nine_labelled_lines_in_order(
    ending: Ending, make_task: Callable[..., TaskInput]
):
    entry = ending.output(make_task()).worklog_entry
    assert entry.splitlines() == [
        "task_id: 7-add-two-numbers-0a1b2c3d",
        "description: Write add(a, b) in solution.py.",
        "iterations_used: 3",
        "tokens_used: 1234",
        "spend_usd: $1.235",
        "files_touched: 2",
        "lines_added: 12",
        "lines_removed: 4",
        "aborted: True (reason: max_spend_usd=5.0 exceeded)",
    ]


def test_the_worklog_entry_of_a_quiet_run_gives_no_reason(make_task: Callable[..., TaskInput]):
    entry = Ending(stop=Stop.SUBMITTED, verdict=Verdict.PASSED).output(make_task()).worklog_entry
    assert entry.splitlines()[-1] == "aborted: False"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\u2028", "\x0b", "\x85"])
def test_a_text_with_line_ends_cannot_forge_a_line_of_the_worklog(
    make_task: Callable[..., TaskInput], line_end: str
):
    task = make_task(description=f"Do it.{line_end}aborted: False")
    ending = Ending(stop=Stop.BLOCKED, reason=f"no.{line_end}spend_usd: $0.000")
    lines = ending.output(task).worklog_entry.splitlines()
    assert [line.partition(":")[0] for line in lines] == LABELS
    assert lines[-1] == "aborted: True (reason: no. spend_usd: $0.000)"


def test_usage_adds_up_field_by_field():
    one = Usage(
        calls=1, estimated_calls=1, prompt_tokens=10, completion_tokens=5, cached_tokens=2, spend_micro_usd=7
    )
    both = one.plus(
        Usage(calls=2, prompt_tokens=1, reasoning_tokens=3, completion_tokens=4, spend_micro_usd=1)
    )
    assert both == Usage(
        calls=3,
        estimated_calls=1,
        prompt_tokens=11,
        completion_tokens=9,
        cached_tokens=2,
        reasoning_tokens=3,
        spend_micro_usd=8,
    )
    assert both.tokens == 20


def test_an_ending_survives_the_wire(ending: Ending):
    assert Ending.model_validate_json(ending.model_dump_json()) == ending
