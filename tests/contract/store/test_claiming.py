import pytest

from zubble_queue.contracts.envelope import ENVELOPE_VERSION
from zubble_queue.contracts.record import Refused, TaskState
from zubble_queue.errors import LeaseLost


async def test_a_claim_gives_the_envelope_a_lease_and_a_clean_start(world):
    [task_id] = await world.submit("a", instructions="Do it.")
    claim = await world.claim(worker_id="w1")

    assert claim.envelope == world.envelope("b", "a", instructions="Do it.")
    assert (claim.lease.task_id, claim.lease.batch, claim.lease.epoch) == (task_id, "b", 1)
    assert len(claim.lease.lease_id) == 32
    assert (claim.last_seq, claim.previous_end, claim.checkpoint) == (1, "none", None)
    assert (claim.usage.calls, claim.wallclock_used_seconds) == (0, 0.0)


async def test_a_claimed_task_runs_on_its_worker_and_its_batch_says_so(world):
    [task_id] = await world.submit("a")
    await world.claim(worker_id="w1")

    task = await world.store.task(task_id)

    assert (task.state, task.worker, task.attempt) == (TaskState.RUNNING, "w1", 1)
    assert task.lease_until == pytest.approx(task.claimed_at + 60, abs=0.01)
    assert (await world.store.batch("b")).states == {"running": 1}
    assert await world.store.announced() == 0


async def test_a_second_message_for_a_leased_task_is_refused_and_the_same_one_twice_is_a_double(world):
    await world.submit("a")
    header = await world.announce_one()
    await world.claim(header)

    again = header.model_copy(update={"push": header.push + 1})
    assert await world.store.claim(again, worker_id="w2") == Refused("leased")
    assert await world.store.claim(header, worker_id="w2") == Refused("doubled")


async def test_the_same_lease_id_may_ask_again_after_a_lost_answer(world):
    await world.submit("a")
    header = await world.announce_one()

    first = await world.store.claim(header, worker_id="w", lease_id="f" * 32)
    again = await world.store.claim(header, worker_id="w", lease_id="f" * 32)

    assert first == again
    assert (await world.store.batch("b")).states == {"running": 1}


async def test_asking_again_begins_the_lease_and_the_wall_clock_anew(world):
    await world.submit("a")
    header = await world.announce_one()
    lease = (await world.store.claim(header, worker_id="w", lease_id="f" * 32)).lease
    await world.expire(lease)
    await world.admin.hincrby(world.keys.task(lease.task_id), "mark", -30_000_000)

    await world.store.claim(header, worker_id="w", lease_id="f" * 32)

    assert (await world.store.reap()).requeued == ()
    await world.store.renew(lease)
    assert int(await world.field(lease.task_id, "wallclock")) < 30_000_000


async def test_an_unknown_task_is_refused(world):
    header = world.envelope("b", "ghost").header(epoch=1)

    assert await world.store.claim(header, worker_id="w") == Refused("unknown")


async def test_a_sealed_task_is_refused(world):
    await world.submit("a")
    header = await world.announce_one()
    await world.store.seal((await world.claim(header)).lease, world.passed)

    assert await world.store.claim(header, worker_id="w") == Refused("sealed")


async def test_a_cancelled_task_is_refused_as_cancelled(world):
    [task_id] = await world.submit("a")
    header = await world.announce_one()
    await world.store.cancel_task(task_id)

    assert await world.store.claim(header, worker_id="w") == Refused("cancelled")


async def test_an_old_attempts_message_is_stale(world):
    await world.submit("a")
    old = await world.announce_one()
    await world.store.release((await world.claim(old)).lease, cause="handover")

    assert await world.store.claim(old, worker_id="w") == Refused("stale")


@pytest.mark.parametrize("change", [{"attempt": 2}, {"attempt": 0}, {"round": 2}])
async def test_a_message_of_another_attempt_or_round_is_stale(world, change):
    await world.submit("a")
    header = (await world.announce_one()).model_copy(update=change)

    assert await world.store.claim(header, worker_id="w") == Refused("stale")


@pytest.mark.parametrize("state", ["paused", "awaiting_human"])
async def test_a_task_that_waits_for_somebody_is_refused_as_paused(world, state):
    [task_id] = await world.submit("a")
    header = await world.announce_one()
    await world.admin.hset(world.keys.task(task_id), "state", state)

    assert await world.store.claim(header, worker_id="w") == Refused("paused")


async def test_an_envelope_of_a_newer_version_is_left_to_a_newer_worker(world):
    [task_id] = await world.submit("a", version=ENVELOPE_VERSION + 1)

    assert await world.store.claim(await world.announce_one(), worker_id="w") == Refused("version")
    assert (await world.store.task(task_id)).state is TaskState.QUEUED


async def test_a_renewal_moves_the_end_of_the_lease(world):
    lease = await world.running()
    await world.admin.zadd(world.keys.leases, {lease.task_id: 1_000_000})

    renewal = await world.store.renew(lease)

    assert (renewal.held, renewal.cancel) == (True, False)
    task = await world.store.task(lease.task_id)
    assert task.lease_until > task.claimed_at + 59


async def test_an_expired_lease_that_nobody_reaped_is_renewed(world):
    lease = await world.running()
    await world.expire(lease)

    assert (await world.store.renew(lease)).held
    assert (await world.store.reap()).requeued == ()


async def test_a_reaped_lease_is_not_renewed(world):
    lease = await world.running()
    await world.lose(lease)

    assert not (await world.store.renew(lease)).held


async def test_the_next_claim_knows_what_was_used_and_how_the_last_one_ended(world):
    lease = await world.running()
    await world.store.settle(lease, "c1", world.usage(prompt_tokens=10, spend_micro_usd=3))
    await world.store.release(lease, cause="handover")

    claim = await world.claim()

    assert (claim.lease.epoch, claim.previous_end) == (2, "released")
    assert (claim.usage.prompt_tokens, claim.usage.spend_micro_usd) == (10, 3)
    assert claim.wallclock_used_seconds > 0


async def test_time_between_attempts_is_not_charged(world):
    lease = await world.running()
    await world.store.release(lease, cause="handover")
    used = await world.field(lease.task_id, "wallclock")

    claim = await world.claim()
    await world.store.renew(claim.lease)

    assert round(claim.wallclock_used_seconds * 1_000_000) == int(used)


async def test_the_gap_between_the_last_renewal_and_the_reaper_is_not_charged(world):
    lease = await world.running()
    await world.store.renew(lease)
    used = await world.field(lease.task_id, "wallclock")
    await world.lose(lease)

    assert await world.field(lease.task_id, "wallclock") == used


async def test_silence_is_charged_for_two_thirds_of_a_lease_at_most(world):
    lease = await world.running()
    await world.admin.hset(world.keys.task(lease.task_id), "mark", 1)

    await world.store.renew(lease)

    assert await world.field(lease.task_id, "wallclock") == str(40_000_000)


async def test_the_first_claim_keeps_its_time_over_all_attempts(world):
    lease = await world.running()
    first = (await world.store.task(lease.task_id)).claimed_at
    await world.store.release(lease, cause="handover")
    await world.claim()

    assert (await world.store.task(lease.task_id)).claimed_at == first


async def test_a_released_task_goes_back_to_the_front_and_is_not_charged_an_attempt(world):
    await world.submit("a", "b")
    lease = (await world.claim()).lease

    await world.store.release(lease, cause="handover")

    assert (await world.announce_one()).source_id == "a"
    assert (await world.store.task(lease.task_id)).abnormal_ends == 0
    assert (await world.store.batch("b")).requeues == 1


async def test_releasing_twice_is_releasing_once(world):
    lease = await world.running()
    await world.store.release(lease, cause="handover")
    await world.store.release(lease, cause="handover")

    assert (await world.store.batch("b")).requeues == 1


async def test_a_task_that_was_cancelled_while_running_is_sealed_when_it_is_released(world):
    lease = await world.running()
    await world.store.cancel_task(lease.task_id)

    await world.store.release(lease, cause="handover")

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"


async def test_release_without_the_lease_is_refused(world):
    lease = await world.running()
    await world.lose(lease)

    with pytest.raises(LeaseLost):
        await world.store.release(lease, cause="handover")


async def test_the_ledger_counts_the_leases_a_worker_holds(world):
    await world.submit("a", "b")
    await world.claim(worker_id="w1")
    lease = (await world.claim(worker_id="w1")).lease
    assert await world.admin.hgetall(world.keys.busy) == {"w1": "2"}

    await world.store.seal(lease, world.passed)
    assert await world.admin.hgetall(world.keys.busy) == {"w1": "1"}
