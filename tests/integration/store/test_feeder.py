import asyncio
import time

import pytest


def announced(mailbox):
    return [header.source_id for header in mailbox.messages]


async def some_were_sent(mailbox, count):
    return len(mailbox.sent) >= count


async def test_without_a_worker_nothing_is_announced(world, farm, mailbox):
    await world.submit("a", "b")
    farm.start("f", mailbox)

    async def it_leads():
        return await world.store.leader("feeder") == "f"

    await world.until(it_leads)
    await farm.worker("full", slots=0)

    assert await world.store.announced() == 0
    assert mailbox.sent == []


@pytest.mark.parametrize(("slots", "expected"), [([1], 2), ([4], 5), ([2, 3], 7), ([8], 10)])
async def test_the_queue_is_filled_to_the_free_slots_and_a_quarter(world, farm, mailbox, slots, expected):
    await world.submit(*(f"t{number}" for number in range(30)))
    for number, count in enumerate(slots):
        await farm.worker(f"w{number}", count)
    farm.start("f", mailbox)

    await world.until(lambda: some_were_sent(mailbox, expected))

    assert announced(mailbox) == [f"t{number}" for number in range(expected)]
    assert await world.store.announced() == expected


async def test_a_claim_takes_a_slot_and_a_seal_makes_room_for_the_next_task(world, farm, mailbox):
    await world.submit(*(f"t{number}" for number in range(10)))
    await farm.worker("w", slots=1)
    farm.start("f", mailbox)
    await world.until(lambda: some_were_sent(mailbox, 2))

    for number in range(10):
        claim = await world.claim(mailbox.messages.pop(0), worker_id="w")
        assert claim.envelope.source_id == f"t{number}"
        await world.store.seal(claim.lease, world.passed)
        await world.until(lambda: some_were_sent(mailbox, min(10, number + 3)))  # noqa: B023

    assert (await world.store.batch("b")).state == "done"


async def test_a_feeder_that_stops_lets_another_lead_before_its_lead_has_run_out(world, farm, mailbox):
    second_mailbox = type(mailbox)()
    await farm.worker("w", slots=4)
    stop, first = farm.start("first", mailbox)

    async def first_leads():
        return await world.store.leader("feeder") == "first"

    await world.until(first_leads)
    farm.start("second", second_mailbox)
    stop.set()
    await first
    await world.submit("a")

    await world.until(lambda: some_were_sent(second_mailbox, 1))
    assert mailbox.sent == []
    assert mailbox.closed


async def test_a_feeder_that_dies_is_replaced_when_its_lead_runs_out(world, farm, mailbox):
    await world.store.lead("feeder", "dead", 1.0)
    await farm.worker("w", slots=4)
    await world.submit("a")
    farm.start("living", mailbox, lease_seconds=2.0)

    await world.until(lambda: some_were_sent(mailbox, 1))

    assert await world.store.leader("feeder") == "living"


async def test_messages_that_could_not_be_sent_are_sent_later(world, farm, mailbox):
    mailbox.failures_left = 2
    await farm.worker("w", slots=4)
    await world.submit("a", "b")
    farm.start("f", mailbox)

    await world.until(lambda: some_were_sent(mailbox, 2))

    assert announced(mailbox) == ["a", "b"]


async def test_messages_that_were_lost_on_the_way_are_sent_again(world, farm, mailbox):
    mailbox.losing = True
    await farm.worker("w", slots=4)
    await world.submit("a", "b")
    farm.start("f", mailbox, lease_seconds=2.0)
    await world.until(lambda: some_were_sent(mailbox, 2))
    mailbox.losing = False

    await world.until(lambda: some_were_sent(mailbox, 4))

    assert sorted(announced(mailbox)) == ["a", "b"]
    assert {header.push for header in mailbox.messages} == {2}


async def test_messages_that_still_wait_are_not_sent_again(world, farm, mailbox):
    await farm.worker("w", slots=1)
    await world.submit("a", "b", "c")
    farm.start("f", mailbox, lease_seconds=2.0)
    await world.until(lambda: some_were_sent(mailbox, 2))
    mailbox.messages.pop()

    await world.until(lambda: some_were_sent(mailbox, 3))

    assert await world.store.announced() == 2
    assert len(mailbox.messages) == 2


async def test_leases_are_reaped_only_after_a_whole_lease_of_contact(world, farm, mailbox):
    lease = await world.running()
    await world.expire(lease)
    began = time.monotonic()
    farm.start("f", mailbox, lease_seconds=2.0)

    async def it_was_reaped():
        return (await world.store.task(lease.task_id)).abnormal_ends == 1

    await world.until(it_was_reaped)

    assert time.monotonic() - began >= 2.0


async def test_neither_a_new_leader_nor_a_cut_connection_puts_reaping_off(world, farm, mailbox):
    _, feeding = farm.start("first", mailbox, lease_seconds=6.0)

    async def contact():
        return float(await world.store.contact(3.0))

    await world.until(contact)
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)
    before = await contact()
    farm.start("second", mailbox, lease_seconds=6.0)
    await world.admin.execute_command("CLIENT", "KILL", "TYPE", "normal")

    async def second_leads():
        return await world.store.leader("feeder") == "second"

    await world.until(second_leads)

    assert await contact() > before


async def test_a_dead_workers_task_is_announced_for_its_next_attempt(world, farm, mailbox):
    await farm.worker("w", slots=2)
    await world.submit("a")
    farm.start("f", mailbox, lease_seconds=2.0)
    await world.until(lambda: some_were_sent(mailbox, 1))
    await world.expire((await world.claim(mailbox.messages.pop(), worker_id="w")).lease)

    await world.until(lambda: some_were_sent(mailbox, 2))

    assert mailbox.messages[-1].attempt == 2


async def test_an_error_nobody_expected_does_not_end_the_feeder(world, farm, mailbox):
    await farm.worker("w", slots=2)
    await world.submit("a")
    await world.admin.delete(world.keys.announced)
    await world.admin.set(world.keys.announced, "not a sorted set")
    _, task = farm.start("f", mailbox)
    await asyncio.sleep(0.3)
    assert not task.done()

    await world.admin.delete(world.keys.announced)

    await world.until(lambda: some_were_sent(mailbox, 1))
