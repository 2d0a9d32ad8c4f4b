"""The four decision points, driven without a loop and through it; whatever goes wrong there means no."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from zubble_queue.contracts.decisions import Allow, Ask, Decisions, Deny
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.testing import FakeContext
from zubble_queue.testing import structured_reply as say
from zubble_worker.stopping import Stopping

PLAN = say("plan", steps=["make it"])
MAKE = say("run", command="touch done.txt", plan_step_id=1)
SUBMIT = say("submit")
POINTS = ("before_step", "assemble", "before_dispatch", "wants_to_stop")
GATES = tuple(point for point in POINTS if point != "assemble")


def policy(**answers):
    """One that answers at the named points as told, and allows everything at the others."""

    def answering(answer):
        def method(self, *_, **__):
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method

    return type("Told", (Decisions,), {name: answering(answer) for name, answer in answers.items()})()


def ask(context, point):
    """What comes of a point: its answer, or the stop it raises."""
    try:
        return context.before_dispatch("ls") if point == "before_dispatch" else getattr(context, point)()
    except Stopping as stopping:
        return stopping.stopped


@pytest.mark.parametrize("point", GATES)
@pytest.mark.parametrize("answer", [Allow(), Deny("not today")])
def test_an_answer_is_taken_as_it_is(point, answer):
    assert ask(FakeContext(policy(**{point: answer})), point) == answer


@pytest.mark.parametrize("point", GATES)
def test_what_needs_a_person_is_denied_where_nobody_is(point):
    answer = ask(FakeContext(policy(**{point: Ask("may it delete the branch?")})), point)

    assert isinstance(answer, Deny)
    assert answer.reason.endswith("nobody is here: may it delete the branch?")


def test_a_route_changes_what_the_model_is_asked():
    asked = ([Message("user", "other")], CallOptions(max_tokens=300, deadline_seconds=5.0))

    assert FakeContext(policy(assemble=asked)).assemble() == asked


class Empty:
    """No policy at all."""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "broken",
    [
        lambda point: policy(**{point: KeyError("x")}),
        lambda point: policy(**{point: None}),
        lambda point: policy(**{point: True}),
        lambda point: policy(**{point: "allow"}),
        lambda point: policy(**{point: Allow}),
        lambda _: lambda: 1 / 0,
        lambda _: lambda: None,
        lambda _: Empty,
        lambda _: Empty(),
        lambda _: "allow",
    ],
    ids=["raises", "none", "true", "text", "class", "unmakable", "made-none", "made-other", "other", "name"],
)
def test_a_policy_first_seen_at_any_point_fails_closed(point, broken):
    context = FakeContext(broken(point))

    for _ in range(2):
        answer = ask(context, point)
        assert isinstance(answer, Deny) or answer.stop is Stop.BLOCKED
        assert answer.reason.startswith("policy ")


@pytest.mark.parametrize("first", POINTS)
def test_a_policy_is_made_once_at_whichever_point_sees_it_first(first):
    made = []

    def make():
        made.append(first)
        return Decisions()

    context = FakeContext(make)
    for point in (first, *POINTS):
        ask(context, point)

    assert made == [first]


def test_a_policy_that_could_not_be_made_is_not_tried_again():
    tries = []

    def make():
        tries.append(1)
        raise OSError("no file")

    context = FakeContext(make)
    answers = [ask(context, point) for point in POINTS]

    assert len(tries) == 1
    assert all(isinstance(answer, Deny) or answer.stop is Stop.BLOCKED for answer in answers)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"max_tokens": 4_000}, True),
        ({"max_tokens": 4_001}, False),
        ({"deadline_seconds": 60.0}, True),
        ({"deadline_seconds": 60.1}, False),
    ],
)
def test_a_route_may_not_ask_for_more_than_the_budget_bears(change, fits):
    options = replace(CallOptions(max_tokens=1_000, deadline_seconds=10.0), **change)
    answer = ask(FakeContext(policy(assemble=([Message("user", "x")], options))), "assemble")

    assert isinstance(answer, tuple) is fits


@pytest.mark.parametrize("messages", [[], "text", [{"role": "user"}], None])
def test_a_route_without_messages_asks_nothing(messages):
    options = CallOptions(max_tokens=1_000, deadline_seconds=10.0)

    assert ask(FakeContext(policy(assemble=(messages, options))), "assemble").stop is Stop.BLOCKED


@pytest.mark.parametrize(
    ("point", "stop", "files"),
    [
        ("before_step", Stop.BLOCKED, False),
        ("assemble", Stop.BLOCKED, False),
        ("before_dispatch", Stop.GAVE_UP, False),
        ("wants_to_stop", Stop.MODEL_STOP, True),
    ],
)
async def test_the_loop_asks_at_all_four_points_and_each_closes(drive, point, stop, files):
    turns = (PLAN, MAKE, say("report", report="no") if point == "before_dispatch" else SUBMIT)

    run = await drive(*turns, decisions=policy(**{point: RuntimeError("broken")}))

    assert run.stopped.stop is stop
    assert ("done.txt" in run.files) is files


async def test_a_step_is_observed_from_its_dispatch_and_succeeds_by_its_result_alone(drive):
    lying = say("run", command="false", plan_step_id=1, note="it worked, exit code 0")

    run = await drive(PLAN, lying, say("report", report="all is well"))

    of_step = [event for event in run.books.events if event.data.get("step") == 2]
    types = [event.type for event in of_step]
    assert types.index("dispatch") < types.index("command_finished") < types.index("observation")
    data = {event.type: event.data for event in of_step}
    assert (data["dispatch"]["tool"], data["dispatch"]["command"]) == ("shell", "false")
    assert data["command_finished"]["exit_code"] == 1
    assert run.transcript.last_exit_code == 1
    assert "exit code 1" in data["observation"]["text"]


def test_the_policy_that_the_document_shows_works():
    document = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "policies.md"
    shown = document.read_text().partition("```python\n")[2].partition("```")[0]

    exec(compile(shown, str(document), "exec"), {"__name__": "shown"})
