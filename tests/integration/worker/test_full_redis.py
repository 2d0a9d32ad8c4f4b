"""A Redis that is full: submitting is refused, what runs goes on to its seal, nothing is lost."""

from __future__ import annotations

import pytest

from zubble_queue.errors import StoreUnavailable
from zubble_queue.testing import structured_reply as say

from .conftest import wait_until

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
SUBMIT = say("submit", report="it is there")
SLOW = {"text": MAKE, "token_seconds": 0.05}


@pytest.fixture
def limit():
    """Set maxmemory to a share of what the server uses now; 0 lifts it."""

    async def set_share(zubble, share: float) -> None:
        client = zubble.store._client
        used = (await client.info("memory"))["used_memory"]
        await client.config_set("maxmemory", int(used * share))

    return set_share


async def test_what_runs_is_sealed_and_what_waits_goes_on_when_there_is_room(install, limit):
    zubble = await install({"running": [PLAN, SLOW, SLOW, SUBMIT], "waiting": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("running"), zubble.task("waiting"))
    worker = zubble.start_worker(slots=1)

    async def runs() -> bool:
        return len(zubble.endpoint.calls) >= 2

    await wait_until(runs, "an agent is at work")
    await limit(zubble, 0.5)

    with pytest.raises(StoreUnavailable, match=r"^Redis at unix://.* is .*full.*: raise maxmemory"):
        await zubble.submit(zubble.task("late"))
    running = await zubble.sealed("running")
    assert (running.outcome, running.attempt, running.abnormal_ends) == ("verified", 1, 0)
    assert running.ending.iterations_used == 4

    async def is_still_queued() -> bool:
        return (await zubble.store.task(zubble.task("waiting").task_id)).state == "queued"

    assert await is_still_queued()
    await limit(zubble, 0)
    waiting = await zubble.sealed("waiting")
    assert (waiting.outcome, waiting.abnormal_ends) == ("verified", 0)
    assert worker.poll() is None, "the worker lived through it"
    await zubble.submit(zubble.task("running"), zubble.task("waiting"), zubble.task("late"))
    assert (await zubble.store.batch("batch")).total == 3
