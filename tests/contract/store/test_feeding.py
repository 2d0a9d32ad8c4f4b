import asyncio
import json

import pytest

from zubble_queue.contracts.record import BatchInfo, Reaped, WorkerInfo
from zubble_queue.errors import UnknownName
from zubble_queue.feeder import offers


def worker(worker_id, slots=4, **fields):
    return WorkerInfo(worker_id=worker_id, version="1", host="h", pid=1, slots=slots, busy=0, **fields)


async def test_a_header_says_who_the_task_is_and_nothing_it_contains(world):
    wanted = world.envelope("b", "a", labels={"kind": "x"}, instructions="secret text")
    await world.submit("a", labels={"kind": "x"}, instructions="secret text")

    header = await world.announce_one()

    assert header == wanted.header(epoch=1)
    assert "secret text" not in header.model_dump_json()
    assert header.message_id == f"{wanted.task_id}.1.1"


async def test_a_task_that_demands_a_strength_waits_for_a_worker_that_found_it(world):
    await world.submit("strong", sandbox={"min_strength": "limits"})
    await world.submit("weak")
    model = world.envelope("b", "weak").model
    serves = {"models": {model: "h"}, "sandboxes": ("bubblewrap",)}
    weak = worker("w", **serves, strengths={"bubblewrap": "namespaces"})
    strong = worker("s", **serves, strengths={"bubblewrap": "kernel"})

    first = await world.store.announce(5, offers([weak]))
    second = await world.store.announce(5, offers([strong]))

    assert [header.source_id for header in first] == ["weak"]
    assert [(header.source_id, header.sandbox) for header in second] == [("strong", "bubblewrap:limits")]


async def test_what_a_batch_waits_for_is_counted_by_need(world):
    await world.submit("weak", "weaker", "weakest")
    await world.submit("strong", sandbox={"min_strength": "limits"})
    model = world.envelope("b", "weak").model
    await world.store.announce(1)

    assert await world.store.waiting_by_need("b") == {
        f"default/bubblewrap/{model}": 2,
        f"default/bubblewrap:limits/{model}": 1,
    }
    with pytest.raises(UnknownName):
        await world.store.waiting_by_need("no such batch")


@pytest.mark.parametrize("limit", [0, 1, 3, 250])
async def test_no_more_tasks_are_announced_than_were_asked_for(world, limit):
    await world.submit(*(f"t{number}" for number in range(260)))

    assert len(await world.store.announce(limit)) == limit
    assert await world.store.announced() == limit


async def test_a_task_is_announced_once(world):
    await world.submit("a")

    assert len(await world.store.announce(5)) == 1
    assert await world.store.announce(5) == []


async def test_a_batch_that_is_still_loading_is_fed(world):
    await world.store.create_batch(BatchInfo(name="b"))
    await world.store.add_tasks("b", [world.envelope("b", "a")])

    assert len(await world.store.announce(5)) == 1


async def test_a_lost_message_is_announced_again_with_another_id(world):
    await world.submit("a")
    first = await world.announce_one()

    [again] = await world.store.reannounce(0, 5)

    assert again.message_id == first.message_id.replace(".1.1", ".1.2")
    assert again.attempt == first.attempt


async def test_a_message_that_is_not_old_enough_is_not_announced_again(world):
    await world.submit("a")
    await world.announce_one()

    assert await world.store.reannounce(60, 5) == []


async def test_the_oldest_messages_are_announced_again_first_and_no_more_than_asked(world):
    await world.submit("a", "b", "c")
    announced = [await world.announce_one() for _ in range(3)]

    again = await world.store.reannounce(0, 2)

    assert [header.task_id for header in again] == [header.task_id for header in announced[:2]]
    assert await world.store.reannounce(0, 0) == []


async def test_a_claimed_task_is_not_announced_again(world):
    await world.running()

    assert await world.store.reannounce(0, 5) == []


async def test_whichever_message_of_an_attempt_arrives_first_gets_the_lease(world):
    await world.submit("a")
    first = await world.announce_one()
    [second] = await world.store.reannounce(0, 1)

    assert (await world.claim(second)).lease.epoch == 1
    assert (await world.store.claim(first, worker_id="w")).reason == "leased"


@pytest.mark.parametrize("text", ['{"version": 9}', "[]", "null", "{", ""])
async def test_an_envelope_of_an_unknown_form_is_passed_over_without_an_error(world, text):
    [odd, _] = await world.submit("odd", "plain")
    await world.admin.hset(world.keys.task(odd), "envelope", text)

    assert [header.source_id for header in await world.store.announce(5)] == ["plain"]


async def test_a_task_is_announced_for_what_it_was_submitted_for_whatever_its_envelope_says_now(world):
    wanted = world.envelope("b", "a")
    [task_id] = await world.submit("a")
    forged = wanted.model_dump(mode="json") | {"pool": "gpu", "sandbox": {"backend": "local"}}
    await world.admin.hset(world.keys.task(task_id), "envelope", json.dumps(forged))

    assert (await world.announce_one()).need == wanted.need
    assert [again.need for again in await world.store.reannounce(0, 5)] == [wanted.need]


async def test_an_index_entry_without_a_waiting_task_is_passed_over(world):
    lease = await world.running()
    await world.submit("b")
    for ghost in ("ghost", lease.task_id):
        await world.admin.zadd(world.keys.batch("b", "waiting"), {ghost: 0})
        await world.admin.zadd(world.keys.announced, {ghost: 0})

    assert await world.store.reannounce(0, 5) == []
    assert await world.store.announced() == 0
    assert [header.source_id for header in await world.store.announce(5)] == ["b"]


async def test_one_holder_leads_and_keeps_the_lead(world):
    assert await world.store.lead("feeder", "one", 30)
    assert not await world.store.lead("feeder", "two", 30)
    assert await world.store.lead("feeder", "one", 30)
    assert await world.store.leader("feeder") == "one"


async def test_a_lead_that_is_not_kept_runs_out(world):
    await world.store.lead("feeder", "one", 0.02)
    await world.until(lambda: world.store.lead("feeder", "two", 30))

    assert await world.store.leader("feeder") == "two"


async def test_only_the_holder_can_resign(world):
    await world.store.lead("feeder", "one", 30)
    await world.store.resign("feeder", "two")
    assert await world.store.leader("feeder") == "one"

    await world.store.resign("feeder", "one")
    assert await world.store.leader("feeder") is None


async def test_roles_are_led_apart(world):
    assert await world.store.lead("feeder", "one", 30)
    assert await world.store.lead("other", "two", 30)


async def test_registered_workers_are_listed_until_their_time_runs_out(world):
    await world.store.register(worker("stays", models={"m": "hash"}), ttl_seconds=60)
    await world.store.register(worker("goes"), ttl_seconds=0.01)

    async def one_is_gone():
        return len(await world.store.workers()) == 1

    await world.until(one_is_gone)
    assert await world.store.workers() == [worker("stays", models={"m": "hash"})]


async def test_a_worker_that_leaves_is_no_longer_listed(world):
    await world.store.register(worker("w"), ttl_seconds=60)
    await world.store.unregister("w")

    assert await world.store.workers() == []
    assert await world.admin.zcard(world.keys.workers) == 0


async def test_a_worker_is_as_busy_as_the_ledger_says(world):
    await world.store.register(worker("w"), ttl_seconds=60)
    await world.submit("a", "b")
    await world.claim(worker_id="w")

    [info] = await world.store.workers()

    assert (info.slots, info.busy) == (4, 1)


@pytest.mark.parametrize("event", ["submit", "seal", "release", "reap", "register", "unregister", "cancel"])
async def test_what_changes_the_work_wakes_the_feeder(world, event):
    lease = await world.running()
    await world.store.register(worker("w"), ttl_seconds=60)
    await world.admin.delete(world.keys.wake)
    happen = {
        "submit": lambda: world.submit("new"),
        "seal": lambda: world.store.seal(lease, world.passed),
        "release": lambda: world.store.release(lease, cause="handover"),
        "reap": lambda: world.lose(lease),
        "register": lambda: world.store.register(worker("w", slots=9), ttl_seconds=60),
        "unregister": lambda: world.store.unregister("w"),
        "cancel": world.cancel_waiting,
    }

    waiting = asyncio.create_task(world.store.wait_for_work(60))
    await happen[event]()

    async with asyncio.timeout(30):
        await waiting


async def test_a_mere_heartbeat_wakes_nobody(world):
    await world.store.register(worker("w"), ttl_seconds=60)
    await world.admin.delete(world.keys.wake)
    await world.store.register(worker("w"), ttl_seconds=60)

    assert await world.admin.llen(world.keys.wake) == 0


async def test_waiting_for_work_ends_at_its_timeout(world):
    await world.store.wait_for_work(0.05)

    assert await world.admin.llen(world.keys.wake) == 0


async def test_a_quiet_census_finds_nothing_to_mend(world):
    await world.submit("a", "b", "c", "d")
    await world.claim()
    lease = (await world.claim()).lease
    await world.store.seal(lease, world.passed)
    await world.announce_one()

    census = await world.store.census()

    assert (census.reannounced, census.orphans, census.miscounted) == ((), (), ())


async def test_the_census_puts_a_waiting_task_back_that_is_in_no_list(world):
    [task_id] = await world.submit("a")
    await world.admin.delete(world.keys.batch("b", "waiting"))
    await world.admin.delete(world.keys.prefix + "feeding")

    assert (await world.store.census()).reannounced == (task_id,)
    assert (await world.announce_one()).task_id == task_id


async def test_a_task_that_was_put_back_leaves_the_list_when_its_first_message_arrives_after_all(world):
    await world.submit("a")
    header = await world.announce_one()
    await world.admin.delete(world.keys.announced)
    await world.store.census()

    await world.claim(header)

    assert await world.admin.zcard(world.keys.batch("b", "waiting")) == 0


async def test_the_census_gives_a_running_task_without_a_deadline_one(world):
    lease = await world.running()
    await world.admin.delete(world.keys.leases)
    await world.store.census()
    assert (await world.store.task(lease.task_id)).lease_until > await world.now() + 50
    await world.expire(lease)

    assert await world.store.reap() == Reaped((lease.task_id,), ())


async def test_the_census_drops_index_entries_without_a_record(world):
    ids = await world.submit("announced", "waiting")
    await world.announce_one()
    for task_id in ids:
        await world.admin.delete(world.keys.task(task_id), world.keys.task(task_id, "events"))

    census = await world.store.census()

    assert set(census.orphans) == set(ids)
    assert await world.store.announced() == 0
    assert await world.admin.zcard(world.keys.batch("b", "waiting")) == 0
    assert (await world.store.batch("b")).total == 0


async def test_the_census_forgets_a_batch_that_is_gone(world):
    await world.submit("a")
    for key in await world.admin.keys(f"{world.namespace}:*"):
        if ":batch:b" in key or ":task:" in key:
            await world.admin.delete(key)

    await world.store.census()

    assert await world.store.batches() == []
    assert await world.store.announce(1) == []


async def test_the_census_mends_wrong_counters(world):
    await world.submit("a", "b")
    await world.store.seal((await world.claim()).lease, world.passed)
    right = await world.store.batch("b")
    await world.admin.hset(world.keys.batch("b"), "state:queued", 7)
    await world.admin.hset(world.keys.batch("b"), "outcome:failed", 2)

    assert (await world.store.census()).miscounted == ("b",)
    assert await world.store.batch("b") == right
    assert (await world.store.census()).miscounted == ()


async def test_the_census_lets_a_batch_expire_whose_counter_hid_that_it_was_done(world):
    lease = await world.running()
    await world.admin.hincrby(world.keys.batch("b"), "total", 1)
    await world.store.seal(lease, world.passed)
    assert await world.admin.ttl(world.keys.batch("b")) == -1

    await world.store.census()

    assert (await world.store.batch("b")).state == "done"
    assert await world.admin.ttl(world.keys.batch("b")) > 0


async def test_counters_that_moved_while_they_were_counted_are_left_for_the_next_census(world):
    await world.submit("a", "b")
    stale_changes = await world.admin.hget(world.keys.batch("b"), "changes")
    await world.claim()

    assert not await world.store._run("recount", "b", stale_changes, "state:queued", 2)
    assert (await world.store.batch("b")).states == {"queued": 1, "running": 1}


async def test_the_census_finishes_a_cancellation_that_was_cut_off(world):
    await world.submit("a", "b")
    await world.admin.hset(world.keys.batch("b"), "state", "cancelled")

    await world.store.census()

    assert (await world.store.batch("b")).outcomes == {"cancelled": 2}
