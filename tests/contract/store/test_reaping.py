import pytest

from zubble_queue.contracts.record import TaskState


async def test_a_living_lease_is_left_alone(world):
    lease = await world.running()

    reaped = await world.store.reap()

    assert (reaped.requeued, reaped.stuck) == ((), ())
    assert (await world.store.renew(lease)).held


async def test_a_task_whose_worker_died_waits_again_at_the_front(world):
    await world.submit("a", "b")
    lease = (await world.claim()).lease
    await world.expire(lease)

    reaped = await world.store.reap()

    assert reaped.requeued == (lease.task_id,)
    task = await world.store.task(lease.task_id)
    assert (task.state, task.attempt, task.abnormal_ends) == (TaskState.QUEUED, 1, 1)
    assert (await world.store.batch("b")).requeues == 1
    header = await world.announce_one()
    assert header.message_id == f"{lease.task_id}.2.1"


async def test_a_task_is_fed_again_although_its_batch_had_run_dry(world):
    lease = await world.running()
    assert await world.store.announce(5) == []
    await world.lose(lease)

    assert [header.attempt for header in await world.store.announce(5)] == [2]


async def test_the_next_attempt_hears_that_the_last_one_was_lost(world):
    lease = await world.running()
    await world.lose(lease)

    assert (await world.claim()).previous_end == "lost"


async def test_a_lease_runs_out_by_itself(world):
    store = await world.another(lease_seconds=0.05)
    await world.submit("a")
    lease = (await store.claim(await world.announce_one(), worker_id="w")).lease

    reaped = ()
    while not reaped:
        reaped = (await store.reap()).requeued

    assert reaped == (lease.task_id,)
    task = await world.store.task(lease.task_id)
    assert task.claimed_at + 0.05 <= await world.now()


async def test_a_task_that_kills_its_workers_is_sealed_stuck_with_evidence(world):
    await world.submit("a")
    for worker in ("w1", "w2", "w3"):
        lease = (await world.claim(worker_id=worker)).lease
        await world.expire(lease)
        reaped = await world.store.reap()

    assert reaped.stuck == (lease.task_id,)
    task = await world.store.task(lease.task_id)
    assert (task.outcome, task.abnormal_ends) == ("stuck", 3)
    assert "max_attempts=3 reached" in task.ending.reason
    ends = task.ending.evidence["ends"]
    assert [(end["attempt"], end["worker"], end["cause"]) for end in ends] == [
        (1, "w1", "no renewal"),
        (2, "w2", "no renewal"),
        (3, "w3", "no renewal"),
    ]
    assert ends[0]["time"] <= ends[2]["time"] <= task.sealed_at + 0.001
    assert (await world.store.batch("b")).outcomes == {"stuck": 1}


async def test_handed_over_attempts_do_not_make_a_task_stuck(world):
    await world.submit("a")
    for _ in range(5):
        await world.store.release((await world.claim()).lease, cause="handover")
    lease = (await world.claim()).lease
    await world.expire(lease)

    assert (await world.store.reap()).requeued == (lease.task_id,)


async def test_a_cancelled_task_whose_worker_died_is_sealed_and_does_not_run_again(world):
    lease = await world.running()
    await world.store.cancel_task(lease.task_id)
    await world.lose(lease)

    assert (await world.store.task(lease.task_id)).outcome == "cancelled"
    assert await world.store.announce(1) == []


async def test_more_leases_than_one_script_takes_are_reaped_in_one_sweep(world):
    await world.submit(*(f"t{number}" for number in range(450)))
    for header in await world.store.announce(450):
        await world.store.claim(header, worker_id="w")
    await world.expire_all()

    assert len((await world.store.reap()).requeued) == 450
    assert (await world.store.batch("b")).states == {"queued": 450}
    assert await world.admin.hgetall(world.keys.busy) == {}


async def test_an_index_entry_of_a_task_that_does_not_run_is_dropped(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)
    await world.expire(lease)

    assert await world.store.reap() == type(await world.store.reap())((), ())
    assert await world.admin.zcard(world.keys.leases) == 0


async def test_a_batch_whose_counters_are_gone_does_not_keep_others_from_being_reaped(world):
    lease = await world.running(batch="gone")
    await world.submit("b")
    other = (await world.claim()).lease
    await world.admin.delete(world.keys.batch("gone"))
    await world.expire_all()

    assert set((await world.store.reap()).requeued) == {lease.task_id, other.task_id}
    await world.admin.delete(*await world.admin.keys(f"{world.namespace}:1:batch:gone*"))


@pytest.mark.parametrize("kind", ["lease_lost", "sealed"])
async def test_what_the_store_did_on_its_own_account_is_in_the_event_log(world, kind):
    store = await world.another(max_attempts=2)
    lease = await world.running()
    for _ in range(2):
        await world.expire(lease)
        await store.reap()
        if headers := await world.store.announce(1):
            lease = (await world.claim(headers[0])).lease

    [event] = [event for event in await world.store.events(lease.task_id) if event.type == kind]
    if kind == "lease_lost":
        assert event.data == {"worker": "w", "abnormal_ends": 1, "spend_micro_usd": 0}
    else:
        assert event.data["outcome"] == "stuck"


async def test_a_sweep_that_waited_through_a_silence_of_the_server_takes_no_lease(world):
    """Whoever holds the lease waited as well; the next sweep decides, when it has had its chance."""
    store = await world.another(lease_seconds=2)
    lease = await world.running()
    await world.expire(lease)
    await world.admin.execute_command("CLIENT", "PAUSE", 1_500, "WRITE")

    late = await store.reap()

    assert (late.requeued, late.stuck) == ((), ())
    assert (await store.renew(lease)).held
    await world.expire(lease)
    assert (await store.reap()).requeued == (lease.task_id,)


async def test_a_server_that_says_its_time_late_is_not_asked_to_sweep(world):
    store = await world.another(lease_seconds=2)
    lease = await world.running()
    await world.expire(lease)
    await world.admin.execute_command("CLIENT", "PAUSE", 1_500, "ALL")

    assert (await store.reap()).requeued == ()
    assert (await store.renew(lease)).held


async def test_contact_begins_with_the_first_word_and_grows_with_each(world):
    assert await world.store.contact(30.0) == 0

    began = await world.now()
    grown = [await world.store.contact(30.0) for _ in range(3)]

    assert sorted(grown) == grown
    assert 0 < grown[-1] <= await world.now() - began + 0.1


async def test_contact_is_that_of_all_feeders_together(world):
    await world.store.contact(30.0)
    other = await world.another()

    assert await other.contact(30.0) > 0


async def test_a_gap_that_is_too_long_begins_contact_anew_whatever_filled_it(world):
    await world.store.contact(30.0)
    await world.admin.execute_command("CLIENT", "PAUSE", 300, "ALL")

    assert await world.store.contact(0.2) == 0
    assert await world.store.contact(30.0) > 0


@pytest.mark.parametrize("jump_seconds", [600, -600])
async def test_a_jump_of_the_servers_clock_begins_contact_anew(world, jump_seconds):
    await world.store.contact(30.0)
    before = round((await world.now() - jump_seconds) * 1_000_000)
    await world.admin.hset(world.keys.prefix + "contact", mapping={"last": before, "since": before - 60})

    assert await world.store.contact(30.0) == 0
