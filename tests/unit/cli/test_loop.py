"""Flags of a loop that cannot be used: one sentence each, exit code 2, and nothing is touched."""

from __future__ import annotations

import json

import pytest

from zubble_queue.cli import main
from zubble_queue.cli.loop_record import Iteration, LoopRecord
from zubble_queue.cli.loop_views import Limits, code
from zubble_queue.contracts.task import LoopBudget


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--max-spend-usd", "0"], "--max-spend-usd must be above 0 and at most 1,000,000, got 0."),
        (["--max-steps", "101"], "--max-steps: should be less than or equal to 100, got 101."),
        (["--iteration-tokens", "0"], "--iteration-tokens: should be greater than or equal to 1, got 0."),
        (
            ["--model", "m", "--minutes", "0"],
            "--minutes must be at least a second and at most 10,080, got 0.",
        ),
        (
            ["--model", "m", "--plan", "../PLAN.md"],
            "--plan must be a path inside the folder, not '../PLAN.md'.",
        ),
        (
            ["--model", "m", "--plan", ".zubble/x"],
            "--plan must be a path inside the folder, not '.zubble/x'.",
        ),
        (
            ["--model", "m", "--completion-signal", ""],
            "--completion-signal must be one line of 1 to 100 characters",
        ),
        (["--max-attempts", "11"], "Invalid value for '--max-attempts': Input should be less than or equal"),
        (["--model", "m", "--task", "no.md"], "--task: no.md cannot be read: No such file or directory."),
        (["--model", "m"], "Unknown model 'm'; known: none."),
        ([], "Name a model with --model; zubble.toml defines: none."),
    ],
)
def test_flags_of_a_loop_that_cannot_be_used_touch_nothing(tmp_path, monkeypatch, capsys, flags, problem):
    monkeypatch.chdir(tmp_path)

    assert main(["loop", "--task", "Build it.", *flags, "--json"]) == 2

    said = json.loads(capsys.readouterr().out)
    assert said["problems"][0].startswith(problem)
    assert list(tmp_path.iterdir()) == []


def record(tokens: int = 0, spend: int = 0, seconds: float = 0.0) -> LoopRecord:
    done = Iteration(
        number=1,
        task_id="1-loop-0",
        outcome="failed",
        kind="diagnostic",
        progress=(),
        report="",
        interrupted=False,
        steps=1,
        tokens=tokens,
        spend_micro_usd=spend,
        seconds=seconds,
    )
    return LoopRecord(name="loop-1", goal="", iterations=[done])


LIMITS = Limits(9, 3, max_tokens=1_000, max_seconds=60.0, max_spend_usd=1.0, each=LoopBudget())


@pytest.mark.parametrize(
    ("used", "reached"),
    [
        ({"tokens": 743}, None),
        ({"tokens": 744}, None),
        ({"tokens": 745}, "limit:tokens"),
        ({"seconds": 58.0}, None),
        ({"seconds": 59.0}, None),
        ({"seconds": 59.1}, "limit:wallclock"),
        ({"spend": 999_998}, None),
        ({"spend": 999_999}, None),
        ({"spend": 1_000_000}, "limit:spend"),
    ],
)
def test_another_iteration_is_begun_while_the_smallest_useful_one_fits(used, reached):
    assert LIMITS.reached(record(**used)) == reached


@pytest.mark.parametrize(("fruitless", "reached"), [(2, None), (3, "stuck"), (4, "stuck")])
def test_iterations_in_a_row_without_progress_are_stuck(fruitless, reached):
    going = record()
    going.fruitless = fruitless
    assert LIMITS.reached(going) == reached


@pytest.mark.parametrize(("count", "reached"), [(8, None), (9, "limit:iterations"), (10, "limit:iterations")])
def test_iterations_are_counted_but_for_those_that_were_interrupted(count, reached):
    going = record()
    (done,) = going.iterations
    going.iterations = [done] * count + [done.model_copy(update={"interrupted": True})] * 5
    assert LIMITS.reached(going) == reached


def test_an_iteration_gets_what_is_left_of_the_loop_and_no_more_than_one_may_have():
    assert LIMITS.budget(record(tokens=600, spend=250_000, seconds=20)) == LoopBudget(
        max_iterations=20, max_tokens=400, max_wallclock_seconds=40, max_spend_usd=0.75
    )
    ample = Limits(9, 3, max_tokens=10**6, max_seconds=10**5, max_spend_usd=100.0, each=LoopBudget())
    assert ample.budget(record()) == LoopBudget()


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("verified", 0),
        ("stuck", 1),
        ("blocked", 1),
        ("invalid", 2),
        ("infra", 3),
        ("limit:tokens", 4),
        ("cancelled", 130),
    ],
)
def test_the_end_of_a_loop_is_an_exit_code(outcome, expected):
    assert code(outcome) == expected
