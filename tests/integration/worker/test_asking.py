"""A task that asks a person, with real workers: parked, its worker killed, answered, taken up elsewhere."""

from __future__ import annotations

import pytest

from zubble_queue.cli import clearing
from zubble_queue.contracts.question import LATE, Answer, AskRequest
from zubble_queue.contracts.record import TaskState
from zubble_queue.testing import structured_reply as say

from .conftest import wait_until

PLAN = say("plan", steps=["write", "ask", "submit"])
WRITE = say("run", command="echo before > kept.txt", plan_step_id=1)
ASK = say("ask", question="Which colour?", plan_step_id=2)
FINISH = say("run", command="cp kept.txt done.txt", plan_step_id=3)
SUBMIT = say("submit", report="done")
TURNS = [PLAN, WRITE, ASK, FINISH, SUBMIT]


async def waiting(zubble, name):
    """The task's record once it waits for a person, without a worker."""
    [task_id] = [view.task_id async for view in zubble.store.tasks("batch") if view.source_id == name]

    async def is_waiting():
        view = await zubble.store.task(task_id)
        return view if view.state is TaskState.AWAITING_HUMAN and view.lease_until is None else None

    return await wait_until(is_waiting, f"{name} waits for a person", evidence=zubble.log)


@pytest.mark.slow
async def test_a_parked_task_outlives_its_worker_and_ends_verified_elsewhere(install):
    zubble = await install({"ask": TURNS}, after_restart=TURNS)
    await zubble.submit(zubble.task("ask", ask=AskRequest(human=True)))
    first = zubble.start_worker()
    parked = await waiting(zubble, "ask")
    first.kill()
    first.wait()
    calls = len(zubble.endpoint.calls)

    await zubble.store.answer(parked.task_id, Answer(text="blue"))
    zubble.start_worker()
    view = await zubble.sealed("ask")

    assert (view.outcome, view.attempt, view.abnormal_ends) == ("verified", 2, 0)
    assert view.worker != parked.worker
    assert (calls, len(zubble.endpoint.calls)) == (3, 5), "what was asked is not asked of the model again"
    assert view.ending.seconds["awaiting_human"] > 0
    assert zubble.artifacts.get(view.ending.artifacts["work_tree"]).count(b"before\n") == 2
    told = zubble.artifacts.get(view.ending.artifacts["trajectory"])
    assert b"A person answers: blue" in told


@pytest.mark.slow
async def test_a_worker_that_keeps_its_sandbox_goes_on_in_it(install):
    zubble = await install({"ask": TURNS})
    await zubble.submit(zubble.task("ask", ask=AskRequest(human=True, keep_seconds=60)))
    zubble.start_worker()
    task_id = zubble.task("ask").task_id

    async def asks():
        view = await zubble.store.task(task_id)
        return view if view.state is TaskState.AWAITING_HUMAN else None

    asking = await wait_until(asks, "it asks", evidence=zubble.log)
    await zubble.store.answer(task_id, Answer(text="blue"))
    view = await zubble.sealed("ask")

    assert asking.lease_until is not None
    assert (view.outcome, view.attempt) == ("verified", 1)


@pytest.mark.slow
async def test_a_guard_that_nobody_clears_in_time_blocks_the_run_until_it_is_cleared(install):
    look, make = say("run", command="ls"), say("run", command="touch done.txt")
    turns = [look, look, look, make, SUBMIT]
    zubble = await install({"loop": turns}, after_restart=turns)
    asking = AskRequest(human=True, deadline_seconds=1)
    await zubble.submit(zubble.task("loop", ask=asking, guards=("tool-cycle",)))
    zubble.start_worker()
    view = await zubble.sealed("loop")

    assert (view.outcome, view.attempt) == ("blocked", 2)
    assert view.asked.answer == Answer(text=LATE, allowed=False, by="deadline")
    assert view.ending.evidence["detector"] == "tool-cycle"

    await clearing.clear(zubble, view)
    cleared = await zubble.sealed("loop")

    assert (cleared.outcome, cleared.round, cleared.attempt) == ("verified", 2, 3)
    assert cleared.ending.iterations_used == 5
    assert cleared.usage.calls == 5, "what was spent before counts"
