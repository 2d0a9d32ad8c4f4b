import pytest

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.record import BatchInfo, Checkpoint, Refused, TaskState
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.stores.leasing import INFRA_FAILURES

FAILED = Ending(
    stop=Stop.GAVE_UP, reason="no idea", iterations_used=3, artifacts={"patch": f"sha256:{'b' * 64}"}
)


async def let_mature(world):
    """As if the delay of everything postponed were over."""
    delayed = await world.admin.zrange(world.keys.delayed, 0, -1)
    await world.admin.zadd(world.keys.delayed, dict.fromkeys(delayed, 1))
    await world.store.mature()


async def fail(world, times, cause="the endpoint answers 500"):
    lease = await world.running()
    for _ in range(times - 1):
        await world.store.postpone(lease, cause=cause)
        await let_mature(world)
        lease = (await world.claim()).lease
    return lease, await world.store.postpone(lease, cause=cause)


async def test_a_postponed_task_is_fed_again_only_after_its_delay(world):
    lease, delay = await fail(world, 1)

    assert 0.5 <= delay <= 1.5
    assert await world.store.mature() == 0
    assert await world.store.announce(10) == []
    await let_mature(world)
    assert (await world.announce_one()).task_id == lease.task_id


async def test_each_failure_waits_longer_than_the_one_before(world):
    _, delay = await fail(world, 4)

    assert 4.0 <= delay <= 12.0


async def test_failures_of_the_machinery_are_not_the_tasks_lost_attempts(world):
    lease, _ = await fail(world, 5)

    task = await world.store.task(lease.task_id)

    assert (task.state, task.abnormal_ends) == (TaskState.QUEUED, 0)


async def test_a_task_whose_attempts_go_on_failing_is_sealed_infra_with_the_causes(world):
    lease, delay = await fail(world, INFRA_FAILURES)

    task = await world.store.task(lease.task_id)

    assert delay is None
    assert task.outcome == "infra"
    assert task.ending.reason == "the machinery failed 10 times; the last: the endpoint answers 500"
    assert len(task.ending.evidence["ends"]) == INFRA_FAILURES


async def test_what_nobody_foresaw_is_a_lost_attempt_and_waits_all_the_same(world):
    lease = await world.running()

    delays = []
    for _ in range(3):
        delays.append(await world.store.postpone(lease, cause="a fault of our own", unforeseen=True))
        if delays[-1] is not None:
            assert await world.store.announce(10) == []
            await let_mature(world)
            lease = (await world.claim()).lease

    task = await world.store.task(lease.task_id)
    assert [delay and delay > 0 for delay in delays] == [True, True, None]
    assert (task.outcome, task.abnormal_ends) == ("stuck", 3)
    assert task.ending.reason == "max_attempts=3 reached: 3 attempts were lost; the last: a fault of our own"
    assert [end["cause"] for end in task.ending.evidence["ends"]] == ["a fault of our own"] * 3


async def test_a_task_that_has_been_failing_for_an_hour_is_sealed(world):
    lease = await world.running()
    await world.admin.hset(world.keys.task(lease.task_id), "infra_since", 1)

    assert await world.store.postpone(lease, cause="no endpoint") is None
    assert (await world.store.task(lease.task_id)).outcome == "infra"


async def test_each_failure_is_an_event_with_its_cause_number_and_cost(world):
    lease = await world.running()
    await world.store.settle(lease, "c", world.usage(spend_micro_usd=7))
    await world.store.postpone(lease, cause="the endpoint answers 500")

    data = (await world.store.events(lease.task_id))[-1].data

    assert {**data, "delay_seconds": 0} == {
        "cause": "the endpoint answers 500",
        "number": 1,
        "delay_seconds": 0,
        "spend_micro_usd": 7,
    }


async def test_postponing_twice_is_postponing_once(world):
    lease = await world.running()
    await world.store.postpone(lease, cause="x")
    await world.store.postpone(lease, cause="x")

    assert await world.field(lease.task_id, "infra_failures") == "1"


async def test_a_postponed_task_can_be_cancelled(world):
    lease, _ = await fail(world, 1)

    await world.store.cancel_task(lease.task_id)

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"
    assert await world.admin.zcard(world.keys.delayed) == 0


async def test_the_census_leaves_a_postponed_task_where_it_is(world):
    await fail(world, 1)

    census = await world.store.census()

    assert (census.reannounced, census.orphans) == ((), ())
    assert await world.store.announce(10) == []


async def test_a_task_that_was_cancelled_while_running_is_sealed_when_it_is_postponed(world):
    lease = await world.running()
    await world.store.cancel_task(lease.task_id)

    assert await world.store.postpone(lease, cause="x") is None
    assert (await world.store.task(lease.task_id)).outcome == "cancelled"


@pytest.fixture
def with_retries(world):
    async def make(retries):
        await world.store.create_batch(BatchInfo(name="b", tuning=Tuning(max_retries=retries)))
        await world.submit("a")
        return await world.claim()

    return make


async def test_a_batch_that_asks_for_no_retries_gets_none(world):
    await world.submit("a")
    claim = await world.claim()

    assert claim.retries_left == 0
    assert await world.store.try_again(claim.lease, FAILED, Checkpoint(seq=1)) is None
    assert (await world.store.renew(claim.lease)).held


async def test_an_attempt_that_ended_unverified_is_followed_by_another_in_the_same_round_and_budget(
    world, with_retries
):
    first = await with_retries(2)
    await world.store.settle(first.lease, "c", world.usage(spend_micro_usd=7))
    assert await world.store.try_again(first.lease, FAILED, Checkpoint(seq=1)) == 1

    second = await world.claim()

    assert (second.lease.round, second.lease.epoch, second.retries_left) == (1, 2, 1)
    assert (second.usage.spend_micro_usd, second.previous_end) == (7, "retried")
    assert [(past.attempt, past.outcome, past.reason) for past in second.past] == [(1, "failed", "no idea")]
    assert second.checkpoint == Checkpoint(seq=1)
    assert dict(second.past[0].artifacts) == dict(FAILED.artifacts)


async def test_after_the_last_retry_there_is_no_other(world, with_retries):
    claim = await with_retries(1)
    await world.store.try_again(claim.lease, FAILED, Checkpoint(seq=1))
    again = await world.claim()

    assert await world.store.try_again(again.lease, FAILED, Checkpoint(seq=1)) is None


async def test_a_retry_is_an_event_with_its_cause_number_and_cost(world, with_retries):
    claim = await with_retries(1)
    await world.store.settle(claim.lease, "c", world.usage(spend_micro_usd=7))
    await world.store.try_again(claim.lease, FAILED, Checkpoint(seq=1))

    event = (await world.store.events(claim.lease.task_id))[-1]

    assert (event.type, event.data) == (
        "tried_again",
        {"number": 1, "cause": "failed", "reason": "no idea", "spend_micro_usd": 7},
    )


async def test_asking_for_the_same_retry_twice_gives_one(world, with_retries):
    claim = await with_retries(2)

    answers = [await world.store.try_again(claim.lease, FAILED, Checkpoint(seq=1)) for _ in range(2)]

    assert answers == [1, 1]
    assert (await world.claim()).retries_left == 1


async def test_time_spent_waiting_for_others_is_taken_off_the_wall_clock(world):
    lease = await world.running()
    key = world.keys.task(lease.task_id)
    await world.admin.hset(key, "wallclock", 10_000_000)
    await world.store.excuse(lease, 4.0)

    assert 6.0 <= int(await world.admin.hget(key, "wallclock")) / 1_000_000 < 9.9
    await world.store.excuse(lease, 1_000.0)
    await world.store.release(lease, cause="handover")
    claim = await world.claim()
    assert not isinstance(claim, Refused)
    assert claim.wallclock_used_seconds < 5
