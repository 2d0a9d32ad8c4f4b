import asyncio

import pytest

from zubble_queue.contracts.record import BatchInfo, TaskState
from zubble_queue.errors import BadInput, UnknownName


async def test_batches_are_listed_oldest_first(world):
    for name in ("z", "a", "m"):
        await world.store.create_batch(BatchInfo(name=name))

    assert [batch.info.name for batch in await world.store.batches()] == ["z", "a", "m"]


async def test_an_unknown_batch_lists_the_newest_known_ones(world):
    for number in range(25):
        await world.store.create_batch(BatchInfo(name=f"batch-{number:02}"))

    with pytest.raises(UnknownName) as unknown:
        await world.store.batch("nope")

    assert unknown.value.known == tuple(f"batch-{number:02}" for number in range(5, 25))


async def test_an_empty_batch_is_not_done(world):
    await world.store.create_batch(BatchInfo(name="b"))
    await world.store.open_batch("b")

    assert (await world.store.batch("b")).state == "open"


async def test_tasks_are_filtered_by_state_and_by_outcome(world):
    await world.submit("a", "b", "c")
    await world.store.seal((await world.claim()).lease, world.passed)
    await world.claim()

    async def sources(**which):
        return [task.source_id async for task in world.store.tasks("b", **which)]

    assert await sources() == ["a", "b", "c"]
    assert await sources(state=TaskState.RUNNING) == ["b"]
    assert await sources(outcome="verified") == ["a"]
    assert await sources(state=TaskState.QUEUED, outcome="verified") == []


async def test_tasks_of_an_unknown_batch_are_an_error_and_not_nothing(world):
    with pytest.raises(UnknownName):
        [task async for task in world.store.tasks("nope")]


async def test_a_task_is_found_by_its_id_the_beginning_of_it_or_its_source_id(world):
    [task_id, _] = await world.submit("HumanEval/7", "HumanEval/70")

    for text in (task_id, task_id[:9], "HumanEval/7"):
        assert (await world.store.find(text)).task_id == task_id


async def test_a_text_that_means_several_tasks_names_them(world):
    await world.submit("a", batch="one")
    await world.submit("a", batch="two")

    with pytest.raises(BadInput, match=r"'a' may be any of 2 tasks \(.* in one, .* in two\)"):
        await world.store.find("a")
    assert (await world.store.find("a", "two")).batch == "two"


async def test_a_task_is_found_only_in_the_batch_that_was_named(world):
    [task_id] = await world.submit("a", batch="one")
    await world.submit("b", batch="two")

    with pytest.raises(UnknownName, match=f"Unknown task '{task_id}'; known: b"):
        await world.store.find(task_id, "two")
    with pytest.raises(UnknownName, match="Unknown batch 'three'"):
        await world.store.find(task_id, "three")


async def test_a_task_that_is_not_there_is_an_unknown_name(world):
    for read in (world.store.task, world.store.envelope, world.store.worklog):
        with pytest.raises(UnknownName, match="Unknown task 'nope'"):
            await read("nope")
    assert await world.store.events("nope") == []
    assert await world.store.journal("nope") == []


async def test_a_watcher_returns_when_a_task_moves(world):
    await world.submit("a")
    await world.store.batch("b")
    watching = asyncio.create_task(world.store.wait_for_change("b", 60))
    await asyncio.sleep(0.05)
    assert not watching.done()

    await world.claim()

    async with asyncio.timeout(30):
        await watching


async def test_a_watcher_does_not_miss_what_moved_before_it_began_to_wait(world):
    await world.submit("a")
    await world.store.batch("b")
    await world.claim()

    async with asyncio.timeout(30):
        await world.store.wait_for_change("b", 60)


async def test_a_watcher_of_a_quiet_batch_waits_until_its_timeout(world):
    await world.submit("a")
    await world.store.batch("b")

    await world.store.wait_for_change("b", 0.05)

    assert (await world.store.batch("b")).states == {"queued": 1}


async def test_a_preflight_is_remembered_by_content(world):
    content = world.envelope("b", "a").content_hash()
    assert not await world.store.preflighted(content)

    await world.store.set_preflighted(content)

    assert await world.store.preflighted(content)
