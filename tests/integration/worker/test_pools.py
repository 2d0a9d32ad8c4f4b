"""Who gets which task: real workers of two pools around one Redis."""

from __future__ import annotations

from zubble_queue.contracts.record import TaskState
from zubble_queue.testing import structured_reply as say
from zubble_worker.app import CeleryPublisher

from .conftest import BATCH, wait_until

TURNS = [
    say("plan", steps=["make the file", "submit"]),
    say("run", command="echo made > done.txt", plan_step_id=1),
    say("submit", report="it is there"),
]


async def test_a_task_runs_in_its_pool_and_waits_for_it_while_others_go_past(install):
    zubble = await install({"special": TURNS, "plain": TURNS})
    special, plain = zubble.task("special", pool="gpu"), zubble.task("plain")
    await zubble.submit(special, plain)
    zubble.start_worker()

    first = await zubble.sealed("plain")
    assert (await zubble.store.task(special.task_id)).state is TaskState.QUEUED
    assert await zubble.store.announced() == 0

    zubble.start_worker(ZUBBLE_WORKER__POOLS="gpu")
    second = await zubble.sealed("special")

    assert (first.outcome, second.outcome) == ("verified", "verified")
    assert first.worker != second.worker


async def test_a_task_waits_for_the_strength_it_demands_and_a_message_that_lies_runs_nothing(install):
    zubble = await install({"strong": TURNS, "plain": TURNS})
    strong = zubble.task("strong", sandbox={"backend": "local", "min_strength": "namespaces"})
    plain = zubble.task("plain", sandbox={"backend": "local"})
    await zubble.submit(strong, plain)
    zubble.start_worker(ZUBBLE_WORKER__SANDBOXES="local")

    assert (await zubble.sealed("plain")).outcome == "verified"
    assert (await zubble.store.task(strong.task_id)).state is TaskState.QUEUED

    forged = plain.header(epoch=1).model_copy(update={"task_id": strong.task_id, "source_id": "strong"})
    publisher = CeleryPublisher(zubble.settings())
    await publisher.publish([forged])
    await publisher.aclose()
    refused = await zubble.sealed("strong")

    assert (refused.outcome, refused.usage.calls) == ("invalid", 0)
    assert refused.ending.reason == (
        "sandbox.min_strength 'namespaces' is more than 'local' offers on this worker ('none')"
    )


async def test_a_paused_batch_begins_nothing_and_goes_on_when_it_is_resumed(install):
    zubble = await install({"one": TURNS})
    await zubble.submit(zubble.task("one"))
    await zubble.store.pause_batch(BATCH)
    zubble.start_worker()

    async def a_worker_feeds() -> bool:
        return bool(await zubble.store.workers()) and bool(await zubble.store.leader("feeder"))

    await wait_until(a_worker_feeds, "a worker feeds")
    assert await zubble.store.announced() == 0
    assert (await zubble.store.batch(BATCH)).states == {"queued": 1}

    await zubble.store.resume_batch(BATCH)

    assert (await zubble.sealed("one")).outcome == "verified"


async def test_a_retried_task_runs_again_from_the_beginning_with_the_round_before_in_its_history(install):
    zubble = await install({"one": TURNS})
    await zubble.submit(zubble.task("one"))
    zubble.start_worker()
    before = await zubble.sealed("one")

    await zubble.store.retry_tasks(BATCH, [before.task_id])
    after = await zubble.sealed("one")

    assert (before.round, after.round, after.outcome) == (1, 2, "verified")
    assert after.usage == before.usage
    assert after.ending.iterations_used == before.ending.iterations_used
    [past] = await zubble.store.rounds(before.task_id)
    assert past.ending.artifacts["trajectory"] != after.ending.artifacts["trajectory"]
    lines = (await zubble.artifacts.aget(after.ending.artifacts["trajectory"])).splitlines()
    assert b'"type":"retried"' in lines[0]
