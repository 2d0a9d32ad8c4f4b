"""Many clients at once: whatever the order, a task has one lease and one seal."""

import asyncio
from collections import Counter

import pytest

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.record import BatchInfo, Checkpoint, Claim, Reserved
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import LeaseLost

TASKS = 200
CLAIMERS = 20


async def test_of_many_duplicate_messages_each_task_is_claimed_once(world):
    await world.submit(*(f"t{number}" for number in range(TASKS)))
    headers = await world.store.announce(TASKS) + await world.store.reannounce(0, TASKS)

    async def claimer(worker_id):
        offset = hash(worker_id) % len(headers)
        mine = headers[offset:] + headers[:offset]
        return [await world.store.claim(header, worker_id=worker_id) for header in mine]

    answers = await asyncio.gather(*(claimer(f"w{number}") for number in range(CLAIMERS)))

    granted = Counter(
        answer.lease.task_id for each in answers for answer in each if isinstance(answer, Claim)
    )
    assert len(headers) == 2 * TASKS
    assert len(granted) == TASKS
    assert set(granted.values()) == {1}
    assert (await world.store.batch("b")).states == {"running": TASKS}
    busy = await world.admin.hvals(world.keys.busy)
    assert sum(map(int, busy)) == TASKS


async def test_several_feeders_announce_each_task_once(world):
    await world.submit(*(f"t{number}" for number in range(TASKS)))

    answers = await asyncio.gather(*(world.store.announce(15) for _ in range(CLAIMERS)))

    ids = [header.task_id for headers in answers for header in headers]
    assert len(ids) == len(set(ids)) == TASKS


async def test_several_reapers_requeue_each_task_once(world):
    await world.submit(*(f"t{number}" for number in range(50)))
    for header in await world.store.announce(50):
        await world.expire((await world.claim(header)).lease)

    answers = await asyncio.gather(*(world.store.reap() for _ in range(5)))

    ids = [task_id for reaped in answers for task_id in reaped.requeued]
    assert len(ids) == len(set(ids)) == 50
    assert (await world.store.batch("b")).requeues == 50


async def test_a_stale_token_is_refused_by_every_guarded_write(world):
    stale = await world.running()
    await world.lose(stale)
    fresh = (await world.claim()).lease
    store = world.store
    writes = [
        store.reserve(stale, "c", tokens=1, micro_usd=1),
        store.settle(stale, "c", world.usage(spend_micro_usd=1)),
        store.append(stale, [world.event(3)]),
        store.checkpoint(stale, Checkpoint(seq=1)),
        store.seal(stale, world.passed),
        store.release(stale, cause="late"),
        store.postpone(stale, cause="late"),
        store.try_again(stale, world.passed, Checkpoint(seq=1)),
        store.excuse(stale, 1.0),
    ]
    before = await world.admin.hgetall(world.keys.task(fresh.task_id))

    for write in writes:
        with pytest.raises(LeaseLost):
            await write
    assert not (await store.renew(stale)).held

    assert await world.admin.hgetall(world.keys.task(fresh.task_id)) == before
    assert (await store.renew(fresh)).held


async def test_the_right_epoch_with_another_lease_id_is_refused(world):
    lease = await world.running()
    forged = type(lease)(lease.task_id, lease.batch, lease.epoch, "0" * 32)

    with pytest.raises(LeaseLost):
        await world.store.seal(forged, world.passed)
    assert not (await world.store.renew(forged)).held


async def test_a_renewal_and_the_reaper_never_both_win(world):
    await world.submit(*(f"t{number}" for number in range(50)))
    leases = [(await world.claim()).lease for _ in range(50)]
    for lease in leases:
        await world.expire(lease)

    renewals, *reapings = await asyncio.gather(
        asyncio.gather(*(world.store.renew(lease) for lease in leases)),
        world.store.reap(),
        world.store.reap(),
    )

    requeued = {task_id for reaped in reapings for task_id in reaped.requeued}
    held = {lease.task_id for lease, renewal in zip(leases, renewals, strict=True) if renewal.held}
    assert not held & requeued
    assert held | requeued == {lease.task_id for lease in leases}


async def test_cancel_claim_and_seal_at_once_leave_one_ending_for_each_task(world):
    await world.submit(*(f"t{number}" for number in range(TASKS)))
    headers = await world.store.announce(TASKS // 2)

    async def run(header):
        claim = await world.store.claim(header, worker_id="w")
        if isinstance(claim, Claim):
            cancelled = (await world.store.renew(claim.lease)).cancel
            stop = Stop.CANCELLED if cancelled else Stop.GAVE_UP
            await world.store.seal(claim.lease, Ending(stop=stop))

    await asyncio.gather(*(run(header) for header in headers), world.store.cancel_batch("b"))

    batch = await world.store.batch("b")
    assert batch.states == {"sealed": TASKS}
    assert sum(batch.outcomes.values()) == TASKS
    assert (await world.store.census()).miscounted == ()


async def test_racing_reservations_never_exceed_the_budget(world):
    lease = await world.running(budget=LoopBudget(max_tokens=1_000))

    answers = await asyncio.gather(
        *(world.store.reserve(lease, f"c{number}", tokens=30, micro_usd=0) for number in range(100))
    )

    assert sum(isinstance(answer, Reserved) for answer in answers) == 33


async def test_two_submissions_of_the_same_file_at_once_create_each_task_once(world):
    envelopes = [world.envelope("b", f"t{number}") for number in range(1_000)]
    await world.store.create_batch(BatchInfo(name="b"))

    answers = await asyncio.gather(
        *(world.store.add_tasks("b", order) for order in (envelopes, envelopes[::-1]))
    )

    assert sum(answer.created for answer in answers) == 1_000
    assert (await world.store.batch("b")).total == 1_000


async def test_repeated_seals_racing_count_once(world):
    lease = await world.running()

    await asyncio.gather(*(world.store.seal(lease, world.passed) for _ in range(20)))

    assert (await world.store.batch("b")).outcomes == {"verified": 1}
