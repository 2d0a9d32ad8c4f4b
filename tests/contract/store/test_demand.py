"""What another worker would begin, as the store tells it, and what the feeder announces, agree."""

import pytest

from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.need import Need
from zubble_queue.contracts.question import Answer, Question
from zubble_queue.scaling import pool_load
from zubble_queue.stores.limits import Place

NEED = Need("default", "bubblewrap", "scripted")
ONE_CALL = ModelConfig(base_url="http://127.0.0.1:1/v1", price="free", concurrency=1)


async def load(world):
    return pool_load("default", await world.store.demand(), ())


async def test_running_announced_and_waiting_tasks_are_counted_by_need(world):
    await world.submit("a", "b", "c", "d")
    await world.claim()
    await world.announce_one()

    demand = await world.store.demand()

    [lane] = demand.lanes
    assert (lane.batch, lane.need, lane.waiting, lane.announced) == ("b", NEED, 2, 1)
    assert (lane.held, lane.room, demand.running, demand.delayed) == (None, None, {NEED: 1}, 0)
    assert 0 <= lane.oldest_seconds < 60


async def test_running_tasks_are_counted_over_any_number_of_pages(world, monkeypatch):
    monkeypatch.setattr("zubble_queue.stores.demanding.PAGE", 2)
    await world.submit("a", "b", "c", "d")
    for expected in (1, 2, 3, 4):
        await world.claim()

        assert (await world.store.demand()).running == {NEED: expected}


async def test_a_task_that_waits_for_a_person_needs_its_slot_only_while_its_worker_waits_too(world):
    lease = await world.running()
    question = Question(
        question_id="q", kind="question", text="Which?", cause="agent", unanswered=Answer(text="any")
    )
    await world.store.ask(lease, question, 3_600)
    held = await load(world)
    await world.store.release(lease, cause="nobody answered yet")

    left = await load(world)

    assert (held.running, held.runnable, left.running, left.runnable) == (1, 0, 0, 0)


async def test_an_announced_task_of_a_batch_that_has_no_other_is_seen(world):
    await world.submit("a")
    await world.announce_one()

    assert (await load(world)).runnable == 1


async def pause(world):
    await world.store.pause_batch("b")


async def cancel(world):
    await world.store.cancel_batch("b")


async def reach_the_ceiling(world):
    await world.admin.hset(world.keys.batch("b"), "reached", "batch_spend")


async def reach_the_tenants_ceiling(world):
    await world.admin.hset(world.keys.tenant("default"), "reached", "tenant_spend")


async def open_the_breaker(world):
    for number in range(10):
        await world.store.leave(Place("scripted", f"s{number}", 1), ONE_CALL, TryEnd("failed"))


@pytest.mark.parametrize(
    ("hold", "why"),
    [
        (pause, "paused"),
        (reach_the_ceiling, "batch_spend"),
        (reach_the_tenants_ceiling, "tenant_spend"),
        (open_the_breaker, "breaker"),
    ],
)
async def test_what_the_feeder_would_not_announce_needs_no_worker(world, hold, why):
    await world.submit("a", "b")
    await hold(world)

    found = await load(world)

    assert await world.store.announce(5) == []
    assert (found.runnable, found.held) == (0, {why: 2})


async def test_a_cancelled_batch_needs_no_worker(world):
    await world.submit("a", "b")
    await cancel(world)

    assert (await load(world)).runnable == 0


async def test_a_capped_batch_needs_slots_for_what_its_cap_leaves(world):
    await world.submit("a", "b", "c", "d", "e")
    await world.store.tune_batch("b", concurrency=3)
    await world.claim()
    await world.announce_one()

    found = await load(world)

    assert (found.running, found.runnable, found.held) == (1, 2, {"cap": 2})
    assert len(await world.store.announce(5)) == 1


async def test_a_model_whose_places_are_all_taken_needs_no_further_agent_until_nobody_waits(world):
    await world.submit("a")
    for slot in ("one", "two"):
        await world.store.admit(Place("scripted", slot, 1), ONE_CALL)

    full = await load(world)
    await world.admin.hset(world.keys.model("scripted"), "full", 1)
    later = await load(world)

    assert (full.held, full.runnable, later.runnable) == ({"model_slots": 1}, 0, 1)


async def test_a_task_that_comes_back_waits_from_then_on(world):
    await world.submit("a")
    await world.admin.hset(world.keys.task((await world.announce_one()).task_id), "created", 1)
    [header] = await world.store.reannounce(0, 1)
    claim = await world.claim(header)
    await world.store.release(claim.lease, cause="handover")

    [lane] = (await world.store.demand()).lanes
    again = await world.claim()

    assert claim.waited_seconds > 1_000_000
    assert lane.oldest_seconds < 60
    assert again.waited_seconds < 60
