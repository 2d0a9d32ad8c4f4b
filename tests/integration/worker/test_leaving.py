"""Ten agents at work when their worker is told to leave: none is lost, run twice, or charged."""

from __future__ import annotations

import asyncio
import signal

import pytest

from zubble_queue.testing import structured_reply as say

from .conftest import wait_until

PLAN = say("plan", steps=["write", "submit"])
NAMES = [f"agent-{number}" for number in range(10)]


def write(text: str) -> str:
    return say("run", command=f"echo {text} >> log.txt", plan_step_id=1)


FINISH = say("run", command="cp log.txt done.txt", plan_step_id=2)


@pytest.mark.parametrize("drain_seconds", [0.2, 30.0])
async def test_sigterm_during_ten_agents_loses_none_and_charges_none(install, drain_seconds):
    """With a short grace they are handed over and go on elsewhere; with a long one they end here."""
    slow = {"text": FINISH, "token_seconds": 0.1}
    turns = [PLAN, write("one"), slow, say("submit", report="done")]
    zubble = await install(dict.fromkeys(NAMES, turns), after_restart=turns)
    await zubble.submit(*(zubble.task(name) for name in NAMES))
    first = zubble.start_worker(slots=10, ZUBBLE_WORKER__DRAIN_SECONDS=str(drain_seconds))

    async def all_at_work() -> bool:
        return len([call for call in zubble.endpoint.calls if call.turn == 2]) == 10

    await wait_until(all_at_work, "ten agents wait for their third reply")
    first.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(first.wait, 60)
    zubble.start_worker(slots=10)
    views = [await zubble.sealed(name) for name in NAMES]

    assert code == 0
    assert {view.outcome for view in views} == {"verified"}
    assert {view.abnormal_ends for view in views} == {0}
    assert {view.attempt for view in views} == ({2} if drain_seconds < 1 else {1})
    for view in views:
        assert view.ending is not None
        tree = zubble.artifacts.get(view.ending.artifacts["work_tree"])
        assert tree.count(b"one\n") == 2, "once in log.txt and once in its copy"
