"""What an operator does to a batch after it was submitted."""

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.record import BatchInfo, Refused, TaskState
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.errors import BadInput, LeaseLost, UnknownName
from zubble_queue.stores.operating import MOST_ROUNDS

GAVE_UP = Ending(stop=Stop.GAVE_UP)
FILED = Ending(stop=Stop.GAVE_UP, artifacts={"trajectory": "sha256:" + "0" * 64})


async def sealed(world, *names, ending=GAVE_UP):
    """Tasks that have ended."""
    ids = await world.submit(*names)
    for _ in names:
        lease = (await world.claim()).lease
        await world.store.reserve(lease, "c", tokens=9, micro_usd=9, least_micro_usd=1)
        await world.store.settle(lease, "c", world.usage(completion_tokens=5, spend_micro_usd=7))
        await world.store.seal(lease, ending)
    return ids


# -- pause and resume ---------------------------------------------------------------------------------


async def test_nothing_of_a_paused_batch_is_announced_until_it_is_resumed(world):
    await world.submit("a", "b")
    await world.store.pause_batch("b")

    assert (await world.store.batch("b")).state == "paused"
    assert await world.store.announce(5) == []

    await world.store.resume_batch("b")

    assert (await world.store.batch("b")).state == "open"
    assert len(await world.store.announce(5)) == 2


async def test_a_message_on_its_way_begins_nothing_while_the_batch_is_paused(world):
    await world.submit("a")
    header = await world.announce_one()
    await world.store.pause_batch("b")

    assert await world.store.claim(header, worker_id="w") == Refused("paused")
    assert await world.store.announced() == 0

    await world.store.resume_batch("b")
    assert (await world.claim()).lease.epoch == 1


async def test_what_runs_goes_on_while_the_batch_is_paused(world):
    lease = await world.running()
    await world.store.pause_batch("b")

    assert (await world.store.renew(lease)).held
    await world.store.seal(lease, world.passed)

    assert (await world.store.batch("b")).state == "done"


async def test_pausing_and_resuming_twice_changes_nothing(world):
    await world.submit("a")
    for _ in range(2):
        await world.store.pause_batch("b")
    for _ in range(2):
        await world.store.resume_batch("b")

    assert len(await world.store.announce(5)) == 1


async def test_a_paused_batch_can_be_cancelled(world):
    await world.submit("a")
    await world.store.pause_batch("b")
    await world.store.cancel_batch("b")

    assert (await world.store.batch("b")).outcomes == {"cancelled": 1}


# -- tuning -------------------------------------------------------------------------------------------


async def test_what_is_tuned_counts_from_then_on_and_the_rest_stays(world):
    await world.store.create_batch(BatchInfo(name="b", tuning=Tuning(weight=2, concurrency=5)))

    tuning = await world.store.tune_batch("b", priority=3, concurrency=0)

    assert tuning == Tuning(weight=2, priority=3, concurrency=0)
    view = await world.store.batch("b")
    assert view.tuning == tuning
    assert view.info.tuning == Tuning(weight=2, concurrency=5)


@pytest.mark.parametrize(
    "bad",
    [{"weight": -1.0}, {"weight": 0.0}, {"weight": float("nan")}, {"priority": 11}, {"concurrency": -1}],
)
async def test_a_value_out_of_its_bounds_changes_nothing(world, bad):
    await world.submit("a")

    with pytest.raises(ValidationError):
        await world.store.tune_batch("b", **bad)

    assert (await world.store.batch("b")).tuning == Tuning()


async def test_a_batch_whose_priority_changes_starts_level_with_those_of_the_new_one(world):
    await world.store.create_batch(BatchInfo(name="high", tuning=Tuning(priority=1)))
    await world.store.add_tasks("high", [world.envelope("high", f"h{number}") for number in range(60)])
    await world.submit(*(f"t{number}" for number in range(60)))
    await world.store.announce(30)

    await world.store.tune_batch("b", priority=1)

    assert {header.batch for header in await world.store.announce(2)} == {"high", "b"}


# -- retry --------------------------------------------------------------------------------------------


async def test_a_retried_task_waits_again_and_counters_show_the_new_round(world):
    [first, second] = await sealed(world, "a", "b")

    assert await world.store.retry_tasks("b", [second]) == 1

    task, batch = await world.store.task(second), await world.store.batch("b")
    assert (task.state, task.round, task.ending, task.outcome) == (TaskState.QUEUED, 2, None, None)
    assert task.usage == world.usage(calls=0)
    assert (batch.state, batch.states, batch.outcomes) == ("open", {"queued": 1, "sealed": 1}, {"failed": 1})
    assert batch.usage.spend_micro_usd == 14, "what was spent stays spent"
    assert (await world.store.task(first)).round == 1


async def test_the_seal_of_an_earlier_round_stays_in_the_history(world):
    [task_id] = await sealed(world, "a")
    before = await world.store.task(task_id)
    await world.store.retry_tasks("b", [task_id])
    await world.store.seal((await world.claim()).lease, world.passed)

    [past] = await world.store.rounds(task_id)

    assert (past.round, past.ending, past.usage) == (1, before.ending, before.usage)
    assert (past.sealed_at, past.claimed_at) == (before.sealed_at, before.claimed_at)
    assert past.attempts == 1
    after = await world.store.task(task_id)
    assert (after.round, after.outcome, after.attempt) == (2, "verified", 2)
    assert (await world.store.batch("b")).outcomes == {"verified": 1}


async def test_every_round_has_one_seal_and_a_late_worker_of_the_last_one_has_none(world):
    await world.submit("a")
    late = (await world.claim()).lease
    await world.lose(late)
    claim = await world.claim()
    await world.store.seal(claim.lease, GAVE_UP)
    await world.store.retry_tasks("b", [late.task_id])

    for lease in (late, claim.lease):
        with pytest.raises(LeaseLost):
            await world.store.seal(lease, world.passed)
    assert (await world.store.task(late.task_id)).state == TaskState.QUEUED


async def test_a_message_of_an_earlier_round_claims_nothing(world):
    [task_id] = await world.submit("a")
    header = await world.announce_one()
    await world.store.seal((await world.claim(header)).lease, GAVE_UP)
    await world.store.retry_tasks("b", [task_id])

    assert (await world.store.claim(header, worker_id="w")).reason == "stale"
    assert (await world.claim()).lease.round == 2


async def test_a_new_round_has_the_whole_budget_and_nothing_of_the_last_one(world):
    [task_id] = await sealed(world, "a", ending=FILED)
    await world.store.retry_tasks("b", [task_id])

    claim = await world.claim()

    assert (claim.usage, claim.wallclock_used_seconds) == (world.usage(calls=0), 0)
    assert (claim.checkpoint, claim.previous_end) == (None, "none")
    [event] = await world.store.events(task_id)
    assert (event.type, event.data, event.seq) == ("retried", {"round": 2, "after": "failed"}, claim.last_seq)


async def test_events_that_no_trajectory_holds_are_kept_in_front_of_those_of_the_new_round(world):
    [task_id] = await world.submit("a")
    await world.store.cancel_task(task_id)
    await world.store.retry_tasks("b", [task_id])

    assert [event.type for event in await world.store.events(task_id)] == ["accepted", "sealed", "retried"]


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_a_task_that_is_not_sealed_is_not_retried(world, state):
    [task_id] = await world.submit("a")
    if state == "running":
        await world.claim()
    before = await world.store.task(task_id)

    with pytest.raises(BadInput, match=f"Task {task_id} is not sealed; only a sealed task can be retried"):
        await world.store.retry_tasks("b", [task_id])

    assert await world.store.task(task_id) == before


async def test_there_is_a_last_round(world):
    [task_id] = await sealed(world, "a")
    await world.admin.hset(world.keys.task(task_id), "round", MOST_ROUNDS)

    with pytest.raises(BadInput, match=f"has had {MOST_ROUNDS} rounds"):
        await world.store.retry_tasks("b", [task_id])


async def test_a_cancelled_batch_is_open_again_when_its_tasks_are_retried(world):
    [task_id] = await world.submit("a")
    await world.store.cancel_batch("b")

    await world.store.retry_tasks("b", [task_id])
    await world.store.census()

    assert (await world.store.batch("b")).state == "open"
    assert (await world.claim()).lease.task_id == task_id


async def test_the_record_of_a_retried_task_does_not_expire_before_its_new_end(world):
    [task_id] = await sealed(world, "a")
    await world.store.retry_tasks("b", [task_id])

    assert await world.admin.ttl(world.keys.task(task_id)) == -1
    assert await world.admin.ttl(world.keys.batch("b")) == -1


# -- removal ------------------------------------------------------------------------------------------


async def test_a_removed_batch_leaves_no_key_but_what_was_spent(world):
    ids = await sealed(world, "a", "b")
    await world.store.retry_tasks("b", ids)
    await world.store.cancel_batch("b")

    assert await world.store.remove_batch("b") == 2

    left = [key async for key in world.admin.scan_iter(f"{world.namespace}:*")]
    assert [key for key in left if ":task:" in key or ":batch:" in key] == []
    assert await world.store.batches() == []
    with pytest.raises(UnknownName):
        await world.store.batch("b")


async def test_a_batch_with_work_left_is_not_removed(world):
    await sealed(world, "a")
    await world.submit("later")

    with pytest.raises(BadInput, match="1 tasks of batch 'b' are not sealed; cancel it first"):
        await world.store.remove_batch("b")

    assert len([task async for task in world.store.tasks("b")]) == 2


async def test_a_removal_that_was_cut_off_is_finished_by_removing_again(world):
    [first, _] = await sealed(world, "a", "b")
    await world.store._run("remove", "b", first)

    await world.store.remove_batch("b")

    assert await world.store.batches() == []


# -- cancelling without workers -----------------------------------------------------------------------


async def test_a_running_task_whose_worker_is_gone_is_sealed_by_the_cancellation_itself(world):
    lease = await world.running()
    await world.expire(lease)

    assert await world.store.cancel_batch("b") == 1

    assert (await world.store.batch("b")).outcomes == {"cancelled": 1}
    with pytest.raises(LeaseLost):
        await world.store.seal(lease, world.passed)


async def test_cancelling_again_seals_what_did_not_stop_before_its_lease_ran_out(world):
    lease = await world.running()
    assert await world.store.cancel_batch("b") == 1
    assert await world.store.cancel_batch("b") == 0
    await world.expire(lease)

    assert await world.store.cancel_batch("b") == 1

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"


@pytest.mark.parametrize(
    "operate",
    [
        lambda store: store.pause_batch("no"),
        lambda store: store.resume_batch("no"),
        lambda store: store.tune_batch("no", weight=2.0),
        lambda store: store.remove_batch("no"),
        lambda store: store.cancel_batch("no"),
    ],
)
async def test_a_batch_that_is_not_there_is_named_with_those_that_are(world, operate):
    await world.submit("a")

    with pytest.raises(UnknownName, match=r"Unknown batch 'no'; known: b\."):
        await operate(world.store)
