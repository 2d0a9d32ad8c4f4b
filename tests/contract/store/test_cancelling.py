import pytest

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.record import Checkpoint, Refused, TaskState
from zubble_queue.errors import UnknownName


async def test_a_waiting_task_is_sealed_at_once_and_never_announced(world):
    [first, second] = await world.submit("a", "b")

    assert await world.store.cancel_task(first)

    task = await world.store.task(first)
    assert (task.state, task.outcome) == (TaskState.SEALED, "cancelled")
    assert task.ending.reason == "cancelled by the operator"
    assert await world.admin.zrange(world.keys.batch("b", "waiting"), 0, -1) == [second]
    assert [header.task_id for header in await world.store.announce(5)] == [second]


async def test_an_announced_task_that_is_cancelled_makes_room_for_another(world):
    [task_id] = await world.submit("a")
    await world.announce_one()
    await world.store.cancel_task(task_id)

    assert await world.store.announced() == 0


async def test_a_running_task_hears_of_it_with_the_next_renewal(world):
    lease = await world.running()
    assert not (await world.store.renew(lease)).cancel

    assert await world.store.cancel_task(lease.task_id)

    renewal = await world.store.renew(lease)
    assert (renewal.held, renewal.cancel) == (True, True)
    assert (await world.store.task(lease.task_id)).cancel_requested


async def test_a_running_task_is_sealed_by_its_worker_as_it_ended(world):
    lease = await world.running()
    await world.store.cancel_task(lease.task_id)
    await world.store.seal(lease, Ending(stop=Stop.CANCELLED))

    assert (await world.store.batch("b")).outcomes == {"cancelled": 1}


async def test_cancelling_twice_or_after_the_end_does_nothing(world):
    lease = await world.running()
    assert await world.store.cancel_task(lease.task_id)
    assert not await world.store.cancel_task(lease.task_id)
    await world.store.seal(lease, world.passed)
    assert not await world.store.cancel_task(lease.task_id)

    assert (await world.store.task(lease.task_id)).outcome == "verified"


async def test_a_cancelled_batch_seals_what_waits_and_tells_what_runs(world):
    await world.submit("a", "b", "c", "d")
    done = (await world.claim()).lease
    await world.store.seal(done, world.passed)
    running = (await world.claim()).lease
    announced = await world.announce_one()

    assert await world.store.cancel_batch("b") == 3

    batch = await world.store.batch("b")
    assert (batch.state, batch.states) == ("cancelled", {"running": 1, "sealed": 3})
    assert batch.outcomes == {"verified": 1, "cancelled": 2}
    assert (await world.store.renew(running)).cancel
    assert await world.store.claim(announced, worker_id="w") == Refused("cancelled")
    assert await world.store.announce(5) == []


async def test_a_cancelled_batch_expires_once_its_last_task_has_stopped(world):
    lease = await world.running()
    await world.store.cancel_batch("b")
    assert await world.admin.ttl(world.keys.batch("b")) == -1

    await world.store.seal(lease, Ending(stop=Stop.CANCELLED))

    assert await world.admin.ttl(world.keys.batch("b")) > 0


async def test_a_batch_larger_than_one_script_takes_is_cancelled_whole(world):
    await world.submit(*(f"t{number}" for number in range(1_101)))

    assert await world.store.cancel_batch("b") == 1_101
    assert (await world.store.batch("b")).outcomes == {"cancelled": 1_101}


async def test_a_task_of_a_cancelled_batch_that_is_released_does_not_wait_again(world):
    lease = await world.running()
    await world.store.cancel_batch("b")
    await world.store.release(lease, cause="handover")

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"


@pytest.mark.parametrize("end", ["release", "reap"])
async def test_a_cancellation_that_was_cut_off_holds_for_what_ran(world, end):
    lease = await world.running()
    await world.store._run("cancel_batch", "b")
    if end == "release":
        await world.store.release(lease, cause="handover")
    else:
        await world.lose(lease)

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"


async def test_a_cancellation_that_was_cut_off_is_heard_by_what_runs(world):
    lease = await world.running()
    await world.store._run("cancel_batch", "b")

    assert (await world.store.renew(lease)).cancel


async def test_from_the_first_moment_of_a_cancellation_nothing_is_fed_or_claimed(world):
    await world.submit("a", "b")
    header = await world.announce_one()
    await world.store._run("cancel_batch", "b")

    assert await world.store.claim(header, worker_id="w") == Refused("cancelled")
    assert await world.store.announce(5) == []


async def test_unknown_names_are_told(world):
    await world.submit("a", batch="known")

    with pytest.raises(UnknownName, match=r"'nope'; known: known"):
        await world.store.cancel_batch("nope")
    with pytest.raises(UnknownName, match="task 'nope'"):
        await world.store.cancel_task("nope")


async def test_what_an_agent_changed_is_named_by_an_ending_that_nobody_was_there_to_write(world):
    lease = await world.running()
    kept = BlobRef(ref=f"sha256:{'a' * 64}", size=1)
    patch = {"patch": f"sha256:{'b' * 64}"}
    await world.store.checkpoint(lease, Checkpoint(seq=0, snapshot=kept, artifacts=patch))
    await world.store.release(lease, cause="handover")

    await world.store.cancel_task(lease.task_id)

    ending = (await world.store.task(lease.task_id)).ending
    assert dict(ending.artifacts) == {**patch, "work_tree": kept.ref}
