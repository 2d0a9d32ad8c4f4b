from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from zubble_worker.observers import Scope
from zubble_worker.observers.doom_loop import DoomLoop, action_key

SAME = "tree-1"


def kinds(calls: Iterable[str], state: str = SAME, doom_loop: DoomLoop | None = None) -> list[str]:
    judge = doom_loop or DoomLoop()
    return [judge.check(call, state).kind for call in calls]


def test_the_third_identical_call_is_refused_then_the_fourth_and_the_fifth_stops_the_run() -> None:
    assert kinds(["pytest"] * 5) == ["allow", "allow", "refuse", "refuse", "stop"]


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_the_third_round_of_a_cycle_is_refused_at_its_end(length: int) -> None:
    calls = [f"step {number}" for number in range(length)] * 4
    assert kinds(calls)[: 3 * length + 2] == ["allow"] * (3 * length - 1) + ["refuse", "refuse", "stop"]


def test_a_cycle_of_six_is_not_looked_for() -> None:
    assert set(kinds([f"step {number}" for number in range(6)] * 5)) == {"allow"}


def test_two_rounds_and_a_different_call_are_no_loop() -> None:
    assert set(kinds(["a", "b", "a", "b", "c", "a", "b", "a", "b"])) == {"allow"}


def test_the_cycle_of_two_commands_ends_within_twenty_calls() -> None:
    assert kinds(["cat a", "cat b"] * 10).index("stop") == 7


def test_the_same_call_in_a_changed_tree_is_another_step() -> None:
    doom_loop = DoomLoop()
    assert [doom_loop.check("pytest", f"tree-{number}").kind for number in range(10)] == ["allow"] * 10


def test_a_change_of_the_tree_ends_the_refusal() -> None:
    doom_loop = DoomLoop()
    assert kinds(["pytest"] * 3, doom_loop=doom_loop)[-1] == "refuse"
    assert kinds(["pytest"] * 2, "tree-2", doom_loop) == ["allow", "allow"]


def test_a_loop_taken_up_again_goes_on_where_it_was() -> None:
    doom_loop = DoomLoop()
    kinds(["a", "b"] * 3, doom_loop=doom_loop)
    assert set(kinds(["c", "d", "e"], doom_loop=doom_loop)) == {"allow"}
    assert kinds(["b", "a"] * 4, doom_loop=doom_loop)[5:7] == ["refuse", "stop"]


def test_another_loop_has_refusals_of_its_own() -> None:
    doom_loop = DoomLoop()
    assert kinds(["a"] * 4, doom_loop=doom_loop)[-1] == "refuse"
    assert kinds(["b"] * 5, doom_loop=doom_loop) == ["allow", "allow", "refuse", "refuse", "stop"]


def test_a_refusal_says_that_it_is_from_the_harness_and_that_nothing_ran() -> None:
    doom_loop = DoomLoop()
    first, second, third = [doom_loop.check("ls", SAME) for _ in range(5)][2:]
    for verdict in (first, second):
        assert "from the harness, not from the user" in verdict.text
        assert "was not run" in verdict.text
    assert "the run is stopped" not in first.text
    assert "the run is stopped" in second.text
    assert third.text.startswith("the same command 3 times in a row without a change in the work tree")


def test_a_verdict_carries_evidence_for_the_record() -> None:
    doom_loop = DoomLoop()
    verdict = [doom_loop.check(call, SAME) for call in ("a", "b") * 3][-1]
    assert json.loads(json.dumps(verdict.evidence)) == {
        "cycle": 2,
        "repeats": 3,
        "seen": 1,
        "call": "shell: b",
    }


def test_long_and_undecodable_calls_are_kept_short_and_printable() -> None:
    doom_loop = DoomLoop()
    verdict = [doom_loop.check("\udcff" * 5_000, SAME) for _ in range(3)][-1]
    call = verdict.evidence["call"]
    assert len(call.encode("utf-8")) < 300


def test_another_tool_with_the_same_arguments_is_another_call() -> None:
    doom_loop = DoomLoop()
    found = [doom_loop.check('{"path": "a"}', SAME, tool=tool).kind for tool in ("read", "list", "read")]
    assert found == ["allow"] * 3


@pytest.mark.parametrize("scope", ["stream", "context"])
def test_a_context_reset_does_not_give_the_same_loop_a_fresh_three(scope: Scope) -> None:
    doom_loop = DoomLoop()
    kinds(["a"] * 3, doom_loop=doom_loop)
    doom_loop.reset(scope)
    assert kinds(["a"] * 2, doom_loop=doom_loop) == ["refuse", "stop"]


def test_a_new_task_has_no_past() -> None:
    doom_loop = DoomLoop()
    kinds(["a"] * 4, doom_loop=doom_loop)
    doom_loop.reset("task")
    assert kinds(["a"] * 3, doom_loop=doom_loop) == ["allow", "allow", "refuse"]


@pytest.mark.parametrize("worker_dies_after", range(8))
def test_another_worker_goes_on_from_the_state(worker_dies_after: int) -> None:
    calls = ["a", "b"] * 4
    first = DoomLoop()
    before = kinds(calls[:worker_dies_after], doom_loop=first)
    second = DoomLoop.from_state(json.loads(json.dumps(first.state())))
    assert before + kinds(calls[worker_dies_after:], doom_loop=second) == kinds(calls)


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 99"):
        DoomLoop.from_state({**DoomLoop().state(), "version": 99})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": {"y": 1, "x": [2, {"c": 3, "b": 4}]}}', '{"a":{"x":[2,{"b":4,"c":3}],"y":1}}'),
        ("ls   -l\tsrc", " ls -l src\n"),
        ("for x in 1; do \n  echo\ndone\n", "for x in 1; do\n  echo\ndone"),
    ],
)
def test_equal_calls_have_equal_keys(one: str, other: str) -> None:
    assert action_key("shell", one) == action_key("shell", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": 1', '{"a":1'),
        ("true", "false"),
        ("python - <<E\nif x:\n  y\nE", "python - <<E\nif x:\n    y\nE"),
        ("ls a", "ls b"),
    ],
)
def test_different_calls_have_different_keys(one: str, other: str) -> None:
    assert action_key("shell", one) != action_key("shell", other)


@pytest.mark.parametrize("hostile", ["[" * 100_000, "9" * 10_000, "", "\0", "\ud800"])
def test_any_text_has_a_key(hostile: str) -> None:
    assert action_key("shell", hostile).startswith("shell ")
    assert DoomLoop().check(hostile, SAME).kind == "allow"
