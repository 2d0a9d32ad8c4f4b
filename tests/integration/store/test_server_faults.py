"""What a lost connection, a killed server and a paused server do to accepted tasks: nothing."""

import asyncio
import contextlib

import pytest

from zubble_queue.contracts.record import TaskState
from zubble_queue.errors import StoreUnavailable


async def answers(store):
    with contextlib.suppress(StoreUnavailable):
        return bool(await store.batches())
    return False


async def test_a_server_that_is_gone_is_reported_in_one_sentence(own_server, own_world):
    await own_world.submit("a")
    own_server.kill()

    with pytest.raises(StoreUnavailable, match=r"^Redis at unix://.*/socket does not answer: .*\.$"):
        await own_world.store.batches()
    own_server.start()


async def test_a_server_that_hangs_is_reported_and_works_again_when_it_goes_on(own_server, own_world):
    await own_world.submit("a")
    own_server.pause()

    with pytest.raises(
        StoreUnavailable, match=r"^Redis at unix://.*/socket did not answer within 5 seconds\.$"
    ):
        await own_world.store.batches()
    own_server.resume()
    await own_world.until(lambda: answers(own_world.store))


async def test_everything_is_still_there_after_the_server_was_killed(own_server, own_world):
    lease = await own_world.running()
    await own_world.submit("waiting")
    await own_world.store.reserve(lease, "c1", tokens=5, micro_usd=5)
    before = await own_world.store.batch("b")

    own_server.kill()
    own_server.start()
    await own_world.until(lambda: answers(own_world.store))

    assert await own_world.store.batch("b") == before
    assert (await own_world.store.renew(lease)).held
    await own_world.store.settle(lease, "c1", own_world.usage(spend_micro_usd=3))
    await own_world.store.seal(lease, own_world.passed)
    assert (await own_world.announce_one()).source_id == "waiting"


async def test_cut_connections_are_made_again_without_a_word(own_server, own_world):
    lease = await own_world.running()
    with own_server.admin() as admin:
        for _ in range(5):
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert (await own_world.store.renew(lease)).held


async def test_the_feeder_goes_on_after_the_server_was_killed(own_server, own_world, own_farm, mailbox):
    await own_farm.worker("w", slots=8)
    _, task = own_farm.start("f", mailbox)
    await own_world.submit("before")
    await own_world.until(lambda: sent(mailbox, 1))

    own_server.kill()
    own_server.start()
    await own_world.until(lambda: answers(own_world.store))
    await own_world.submit("after")

    await own_world.until(lambda: sent(mailbox, 2))
    assert not task.done()


@pytest.mark.slow
async def test_a_pause_longer_than_a_lease_costs_no_attempt(own_server, own_world, own_farm, mailbox):
    store = await own_world.another(lease_seconds=4.0)
    own_farm.start("f", mailbox, lease_seconds=4.0, store=store)
    await own_world.submit("a")
    lease = (await store.claim(await own_world.announce_one(), worker_id="w")).lease

    async def renew_for(seconds):
        for _ in range(seconds):
            await asyncio.sleep(1)
            assert (await store.renew(lease)).held

    await renew_for(5)
    own_server.pause()
    await asyncio.sleep(6)
    own_server.resume()
    await asyncio.sleep(2)
    await renew_for(3)

    task = await store.task(lease.task_id)
    assert (task.state, task.attempt, task.abnormal_ends) == (TaskState.RUNNING, 1, 0)


async def sent(mailbox, count):
    return len(mailbox.sent) >= count
