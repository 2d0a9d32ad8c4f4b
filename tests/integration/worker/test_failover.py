"""The primary dies, its Sentinels name another, and workers and clients go on with that one."""

from __future__ import annotations

import asyncio

import pytest

from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.testing import structured_reply as say

from .conftest import BATCH, wait_until
from .sentinels import NotInstalled, Sentinels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PLAN = say("plan", steps=["write", "submit"])
NAMES = [f"agent-{number}" for number in range(12)]
SLOW = {"text": say("run", command="echo one > done.txt", plan_step_id=1), "token_seconds": 0.1}


@pytest.fixture
def sentinels(tmp_path, missing_part):
    try:
        redis = Sentinels(tmp_path)
    except NotInstalled as missing:
        missing_part(str(missing))
    try:
        redis.start()
        yield redis
    finally:
        redis.stop()


def submission(zubble, names):
    parcels = [Parcel(zubble.task(name), {}) for name in names]
    return Submission(BatchInfo(name=BATCH, model="mock"), parcels)


async def until_the_replica_is_master(sentinels):
    async def is_master() -> bool:
        return await asyncio.to_thread(sentinels.master) == sentinels.ports[1]

    await wait_until(is_master, "the Sentinels name the replica")


async def test_work_goes_on_when_the_primary_dies_and_its_replica_takes_over(install, sentinels):
    turns = [PLAN, SLOW, say("submit", report="done")]
    zubble = await install(dict.fromkeys(NAMES, turns), after_restart=turns, url=sentinels.url)
    await zubble.dispatcher.submit(submission(zubble, NAMES))
    worker = zubble.start_worker(slots=4)

    async def all_slots_at_work() -> bool:
        return len([call for call in zubble.endpoint.calls if call.turn == 1]) >= 4

    await wait_until(all_slots_at_work, "four agents wait for their second reply", evidence=zubble.log)
    sentinels.kill(sentinels.ports[0])
    await until_the_replica_is_master(sentinels)
    views = [await zubble.sealed(name, 120) for name in NAMES]

    assert {view.outcome for view in views} == {"verified"}
    assert worker.poll() is None
    assert (await zubble.dispatcher.submit(submission(zubble, NAMES))).created == 0


async def test_what_the_primary_took_with_it_is_created_by_submitting_again(install, sentinels):
    before, after = NAMES[:4], NAMES[4:]
    zubble = await install({}, url=sentinels.url)
    await zubble.dispatcher.submit(submission(zubble, before))
    assert sentinels.admin(sentinels.ports[0]).wait(1, 20_000) == 1
    sentinels.cut_off_replica()
    acknowledged = await zubble.dispatcher.submit(submission(zubble, after))
    sentinels.kill(sentinels.ports[0])
    sentinels.wake_replica()
    await until_the_replica_is_master(sentinels)

    again = await zubble.dispatcher.submit(submission(zubble, NAMES))

    assert acknowledged.created == len(after)
    assert (again.created, again.existing) == (len(after), len(before))
