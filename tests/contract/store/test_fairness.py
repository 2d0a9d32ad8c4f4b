"""Whose task is announced next: simulated claims over the real store, without a clock."""

from collections import Counter

import pytest

from zubble_queue.contracts.need import Offer
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.stores.feeding import AGEING_SECONDS

NEED = "default/bubblewrap/scripted"


async def submit(world, batch, count, *, tuning=None, **fields):
    envelopes = [world.envelope(batch, f"{batch}-{number}", **fields) for number in range(count)]
    await world.store.create_batch(BatchInfo(name=batch, tuning=tuning or Tuning()))
    await world.store.add_tasks(batch, envelopes)
    await world.store.open_batch(batch)


def batches(headers):
    return [header.batch for header in headers]


class Slots:
    """Workers that are simulated: every slot claims, in order, and is free again when it is told so."""

    def __init__(self, world, count):
        self.world, self.count = world, count
        self.messages, self.leases, self.started = [], [], []

    async def feed(self):
        room = -(-(self.count - len(self.leases)) * 5 // 4)
        self.messages += await self.world.store.announce(room, [Offer((NEED,), room)])

    async def begin(self):
        """Feed, and claim until every slot is taken or nothing is announced."""
        await self.feed()
        while len(self.leases) < self.count and self.messages:
            claim = await self.world.claim(self.messages.pop(0))
            self.started.append(claim.lease.batch)
            self.leases.append(claim.lease)
        await self.feed()

    async def round(self):
        """Every task that runs ends, one after the other, and another one begins in its slot."""
        for _ in range(len(self.leases)):
            await self.world.store.seal(self.leases.pop(0), self.world.passed)
            await self.begin()


async def test_batches_alike_take_turns_whatever_their_size_and_age(world):
    await submit(world, "old", 50)
    await submit(world, "new", 3)

    assert batches(await world.store.announce(7)) == ["old", "new", "old", "new", "old", "new", "old"]


async def test_a_small_batch_behind_5000_tasks_is_begun_within_two_rounds_of_slots(world):
    await submit(world, "big", 5_000)
    slots = Slots(world, 16)
    await slots.begin()
    await slots.round()
    await submit(world, "small", 10)
    before = len(slots.started)

    await slots.round()
    await slots.round()

    assert Counter(slots.started[before:])["small"] == 10
    assert len(slots.started) - before == 32


async def test_with_weights_of_three_to_one_the_starts_are_three_to_one(world):
    await submit(world, "heavy", 300, tuning=Tuning(weight=3))
    await submit(world, "light", 300)
    slots = Slots(world, 8)
    await slots.begin()

    while len(slots.started) < 200:
        await slots.round()

    starts = Counter(slots.started)
    assert starts["heavy"] / starts["light"] == pytest.approx(3, rel=0.1)


async def test_what_a_task_may_take_is_its_cost_not_that_it_is_one(world):
    await submit(world, "long", 50, budget=LoopBudget(max_wallclock_seconds=900))
    await submit(world, "short", 50, budget=LoopBudget(max_wallclock_seconds=300))

    assert Counter(batches(await world.store.announce(40))) == {"long": 10, "short": 30}


async def test_a_batch_that_was_idle_is_owed_nothing_for_that_time(world):
    await submit(world, "busy", 200)
    await submit(world, "idle", 2)
    await world.store.announce(100)

    await submit(world, "idle", 100)

    assert Counter(batches(await world.store.announce(20))) == {"busy": 10, "idle": 10}


async def test_the_higher_priority_goes_first(world):
    await submit(world, "low", 10)
    await submit(world, "high", 3, tuning=Tuning(priority=1))

    assert batches(await world.store.announce(5)) == ["high", "high", "high", "low", "low"]


@pytest.mark.parametrize("difference", [1, 5])
async def test_a_batch_that_waits_rises_until_it_gets_a_turn_and_falls_again(world, difference):
    await submit(world, "high", 100, tuning=Tuning(priority=difference))
    await submit(world, "low", 100)
    assert set(batches(await world.store.announce(10))) == {"high"}
    long_ago = (await world.now() - difference * AGEING_SECONDS - 1) * 1_000_000
    await world.admin.hset(world.keys.batch("low"), "served", int(long_ago))

    assert batches(await world.store.announce(10)) == ["low", *["high"] * 9]


async def test_waiting_does_not_disturb_the_weights_of_equals(world):
    await submit(world, "heavy", 100, tuning=Tuning(weight=3))
    await submit(world, "light", 100)
    for batch in ("heavy", "light"):
        await world.admin.hset(world.keys.batch(batch), "served", 1)

    assert Counter(batches(await world.store.announce(40))) == {"heavy": 30, "light": 10}


async def test_a_higher_batch_that_nobody_can_run_does_not_disturb_them_either(world):
    await submit(world, "blocked", 1, tuning=Tuning(priority=9), pool="gpu")
    await submit(world, "heavy", 100, tuning=Tuning(weight=3))
    await submit(world, "light", 100)
    for batch in ("heavy", "light"):
        await world.admin.hset(world.keys.batch(batch), "served", 1)

    headers = await world.store.announce(40, [Offer((NEED,), 40)])

    assert Counter(batches(headers)) == {"heavy": 30, "light": 10}


async def test_no_more_tasks_of_a_batch_are_begun_than_its_concurrency(world):
    await submit(world, "capped", 20, tuning=Tuning(concurrency=3))
    await submit(world, "free", 20)

    first = await world.store.announce(10)
    assert Counter(batches(first)) == {"capped": 3, "free": 7}
    assert set(batches(await world.store.announce(5))) == {"free"}

    lease = (await world.claim(next(header for header in first if header.batch == "capped"))).lease
    await world.store.announce(8)
    assert await world.store.announce(5) == []
    await world.store.seal(lease, world.passed)
    assert batches(await world.store.announce(5)) == ["capped"]


async def test_only_what_some_worker_serves_is_announced(world):
    await submit(world, "here", 3)
    await submit(world, "elsewhere", 3, pool="gpu")

    headers = await world.store.announce(10, [Offer((NEED,), 10)])
    assert batches(headers) == ["here"] * 3

    headers = await world.store.announce(10, [Offer(("gpu/bubblewrap/scripted",), 2)])
    assert [(header.batch, header.pool) for header in headers] == [("elsewhere", "gpu")] * 2


async def test_a_task_that_no_worker_serves_blocks_none_behind_it(world):
    await submit(world, "b", 1, pool="gpu")
    await world.store.add_tasks("b", [world.envelope("b", "fits")])

    [header] = await world.store.announce(10, [Offer((NEED,), 10)])

    assert header.source_id == "fits"


async def test_tasks_of_different_needs_are_announced_in_the_order_of_submission(world):
    pools = ["default", "gpu", "default", "gpu"]
    await world.store.create_batch(BatchInfo(name="b"))
    envelopes = [world.envelope("b", f"t{number}", pool=pool) for number, pool in enumerate(pools)]
    await world.store.add_tasks("b", envelopes)

    assert [header.source_id for header in await world.store.announce(4)] == ["t0", "t1", "t2", "t3"]


async def test_what_is_announced_takes_room_from_those_who_serve_it(world):
    await submit(world, "b", 10)
    offers = [Offer((NEED,), 2), Offer((NEED, "gpu/bubblewrap/scripted"), 4)]

    assert len(await world.store.announce(6, offers)) == 6
    assert await world.store.announce(6, offers) == []
    assert await world.store.announced_by_need() == {NEED: 6}


async def test_slots_that_serve_two_needs_are_not_counted_twice(world):
    await submit(world, "here", 10)
    await submit(world, "gpu", 10, pool="gpu")

    headers = await world.store.announce(8, [Offer((NEED, "gpu/bubblewrap/scripted"), 4)])

    assert Counter(batches(headers)) == {"here": 2, "gpu": 2}


async def test_lost_messages_are_sent_again_by_need(world):
    await submit(world, "here", 2)
    await submit(world, "gpu", 2, pool="gpu")
    await world.store.announce(4)

    again = await world.store.reannounce(0, 10, "gpu/bubblewrap/scripted")

    assert batches(again) == ["gpu", "gpu"]


async def test_a_task_that_comes_back_is_announced_before_those_that_never_ran(world):
    await submit(world, "b", 3)
    await world.lose((await world.claim()).lease)

    assert (await world.announce_one()).source_id == "b-0"


async def test_a_feeder_that_waits_is_told_at_once_when_the_lead_is_free(world):
    await world.store.lead("feeder", "one", 30)
    await world.store.resign("feeder", "one")

    await world.store.wait_for_lead("feeder", 60)

    assert await world.store.lead("feeder", "two", 30)
