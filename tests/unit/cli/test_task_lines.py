"""How a task and its ending are shown to people."""

from __future__ import annotations

import pytest

from zubble_queue.cli.edits import _nothing
from zubble_queue.cli.tasks import task_lines
from zubble_queue.contracts.ending import Ending, Stop, Verdict

REF = f"sha256:{'a' * 64}"


@pytest.fixture
def view(task_view):
    """A task that ended in some way."""

    def view(**ending):
        given = {"stop": Stop.SUBMITTED, "verdict": Verdict.PASSED, **ending}
        return task_view(ending=Ending(**given))

    return view


@pytest.mark.parametrize(
    ("verdict", "reward", "shown"),
    [
        (Verdict.PASSED, 1.0, "verdict passed"),
        (Verdict.FAILED, 0.0, "verdict failed"),
        (Verdict.ERROR, None, "verdict error"),
        (Verdict.FAILED, 0.25, "verdict failed, reward 0.25"),
        (
            Verdict.PASSED,
            {"reward": 1.0, "st\x1byle": 0.5},
            r"verdict passed, reward reward 1, st\x1byle 0.5",
        ),
    ],
)
def test_a_reward_is_shown_where_it_says_more_than_the_verdict(view, verdict, reward, shown):
    lines = list(task_lines(view(verdict=verdict, reward=reward), "", []))

    assert lines[2].endswith(f": stop submitted, {shown}")


def test_artifacts_are_named_with_the_command_that_hands_them_out(view):
    kept = dict.fromkeys(("trajectory", "patch", "changed_files"), REF)

    lines = list(task_lines(view(artifacts=kept), "", []))

    assert lines[-3:] == [
        f"  trajectory: {REF}",
        f"  patch: {REF} (zubble task patch 1-a-00000000)",
        f"  changed_files: {REF} (zubble task files 1-a-00000000)",
    ]


@pytest.mark.parametrize(
    ("artifacts", "said"),
    [
        ({}, "left no new or different file"),
        ({"trajectory": REF, "work_tree": REF}, "left no new or different file"),
        ({"work_tree": REF}, "Only the whole work tree was saved: zubble task files 1-a-00000000 --whole"),
    ],
)
def test_what_nobody_was_there_to_compare_is_not_called_unchanged(view, artifacts, said):
    assert said in _nothing(view(stop=Stop.STUCK, verdict=Verdict.NOT_RUN, artifacts=artifacts))
