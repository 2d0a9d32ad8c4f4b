"""What the next attempt replays, by where the one before was cut off."""

from __future__ import annotations

from typing import Any

import pytest

from zubble_queue.contracts.event import Event
from zubble_queue.trajectories.branch import kept_branch
from zubble_worker.resuming import acted_on, interruption

Part = tuple[str, dict[str, Any]]
OPENING: list[Part] = [("accepted", {}), ("claimed", {}), ("sandbox_opened", {})]


def call(step: int, kind: str = "step") -> list[Part]:
    return [("call_started", {"step": step, "kind": kind}), ("call_finished", {"step": step})]


def acting(step: int, verdict: str = "allow") -> list[Part]:
    return [("action", {"step": step}), ("dispatch", {"command": f"do {step}", "doom_loop": verdict})]


ENDED: Part = ("command_finished", {"exit_code": 3})
SEEN: Part = ("observation", {})
FIRST_STEP: list[Part] = [*OPENING, *call(1), *acting(1), ENDED, SEEN]


def log(*parts: Part) -> list[Event]:
    return [
        Event(seq=seq, time=0.0, attempt=1, type=type_, data=data)
        for seq, (type_, data) in enumerate(parts, start=1)
    ]


@pytest.mark.parametrize(
    "last",
    [
        call(2)[:1],
        call(2),
        [*call(2), *acting(2)[:1]],
        [*call(2), ("format_error", {}), *call(2, "repair")],
        [*call(2), *acting(2, "refuse")],
    ],
    ids=["asked", "answered", "understood", "repaired", "refused"],
)
def test_a_step_of_which_nothing_was_done_is_left_out(last):
    events = log(*FIRST_STEP, *last)

    kept = acted_on(events)

    assert kept == events[: len(FIRST_STEP)]
    assert interruption(kept) == ""


def test_a_whole_step_is_kept_and_nothing_is_said():
    events = log(*FIRST_STEP)

    assert acted_on(events) == events
    assert interruption(events) == ""


def test_a_step_without_a_command_is_whole_once_it_was_observed():
    events = log(*OPENING, *call(1), ("action", {"step": 1}), SEEN)

    assert acted_on(events) == events


def test_of_a_command_that_was_running_the_agent_is_told():
    events = log(*FIRST_STEP, *call(2), *acting(2))

    assert acted_on(events) == events
    assert interruption(events) == "Your last command was interrupted and may have run in part: do 2"


def test_of_a_command_whose_result_was_not_seen_the_agent_is_told_the_exit_code():
    events = log(*FIRST_STEP, *call(2), *acting(2), ENDED)

    assert acted_on(events) == events
    assert interruption(events) == "Your last command had ended with exit code 3, its output is gone: do 2"


def test_before_the_first_call_everything_is_kept():
    events = log(*OPENING)

    assert acted_on(events) == events
    assert interruption(events) == ""


def test_a_new_round_begins_with_nothing_of_the_one_before():
    kept = kept_branch(log(*FIRST_STEP, ("retried", {"round": 2}), *OPENING))

    assert [event.type for event in kept] == ["retried", *(kind for kind, _ in OPENING)]


def test_what_was_left_out_once_stays_left_out():
    first = [*FIRST_STEP, *call(2), *acting(2)[:1]]
    second = [("claimed", {}), ("restarted", {"resumed_from": len(FIRST_STEP)}), *call(2), *acting(2), ENDED]

    kept = kept_branch(log(*first, *second, SEEN))

    assert [event.type for event in kept[len(FIRST_STEP) :]] == [
        "restarted",
        "call_started",
        "call_finished",
        "action",
        "dispatch",
        "command_finished",
        "observation",
    ]
