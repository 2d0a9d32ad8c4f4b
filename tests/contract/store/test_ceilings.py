import pytest

from zubble_queue.contracts.record import BatchInfo, OverLimit, Parked, Reserved, TaskState
from zubble_queue.errors import BadInput, UnknownName

CENT = 10_000


@pytest.fixture
def make(world):
    """Leases of so many tasks of one batch, with a ceiling in micro-USD."""

    async def make(count, ceiling=None, *, on_ceiling="pause", batch="b", tenant="default", claimed=None):
        usd = ceiling / 1_000_000 if ceiling is not None else None
        info = BatchInfo(name=batch, tenant=tenant, max_spend_usd=usd, on_ceiling=on_ceiling)
        await world.store.create_batch(info)
        await world.submit(*(f"t{number}" for number in range(count)), batch=batch)
        return [(await world.claim()).lease for _ in range(count if claimed is None else claimed)]

    return make


async def reserve(world, lease, micro_usd, least=None, call="c1"):
    return await world.store.reserve(lease, call, tokens=1, micro_usd=micro_usd, least_micro_usd=least)


async def spend(world, lease, micro_usd, call="spent"):
    await world.store.settle(lease, call, world.usage(spend_micro_usd=micro_usd))


async def test_a_batch_without_a_ceiling_is_limited_by_its_tasks_alone(world, make):
    [lease] = await make(1)

    assert await reserve(world, lease, 5_000_000) == Reserved("c1", 5_000_000)


async def test_a_call_that_other_calls_reservations_leave_no_room_for_is_parked(world, make):
    one, two = await make(2, 100 * CENT)
    await reserve(world, one, 60 * CENT)

    assert await reserve(world, two, 60 * CENT) == Parked("batch_spend")


async def test_a_parked_call_is_granted_once_the_other_is_settled(world, make):
    one, two = await make(2, 100 * CENT)
    await reserve(world, one, 60 * CENT)
    await reserve(world, two, 60 * CENT)
    await spend(world, one, 10 * CENT, "c1")

    assert await reserve(world, two, 60 * CENT) == Reserved("c1", 60 * CENT)


async def test_near_the_ceiling_a_call_gets_what_is_left(world, make):
    one, two = await make(2, 100 * CENT)
    await spend(world, one, 70 * CENT)

    assert await reserve(world, two, 60 * CENT, least=1) == Reserved("c1", 30 * CENT)


async def test_a_call_is_not_made_smaller_for_what_others_hold_only_for_a_while(world, make):
    one, two = await make(2, 100 * CENT)
    await reserve(world, one, 60 * CENT)

    assert await reserve(world, two, 60 * CENT, least=1) == Parked("batch_spend")


@pytest.mark.parametrize(("on_ceiling", "pauses"), [("pause", True), ("seal", False)])
async def test_a_ceiling_is_reached_when_the_smallest_useful_call_does_not_fit(
    world, make, on_ceiling, pauses
):
    one, two = await make(2, 100 * CENT, on_ceiling=on_ceiling)
    await spend(world, one, 95 * CENT)

    refused = await reserve(world, two, 60 * CENT, least=6 * CENT)

    assert refused == OverLimit("batch_spend", 5 * CENT, pauses=pauses)
    assert (await world.store.batch("b")).ceiling_reached == "batch_spend"


async def test_a_batch_at_its_ceiling_is_not_fed_and_another_is(world, make):
    [lease] = await make(3, 1, claimed=1)
    await spend(world, lease, 2)
    await reserve(world, lease, 1)
    await world.submit("free", batch="other")

    assert [header.source_id for header in await world.store.announce(10)] == ["free"]


async def test_a_task_that_was_announced_before_the_ceiling_is_put_back_by_its_claim(world, make):
    [lease] = await make(2, 1, claimed=1)
    header = await world.announce_one()
    await spend(world, lease, 2)
    await reserve(world, lease, 1)

    refused = await world.store.claim(header, worker_id="w")

    assert refused.reason == "paused"
    assert await world.store.announced() == 0
    await world.store.set_ceiling("batch", "b", 100)
    assert (await world.announce_one()).task_id == header.task_id


async def test_raising_the_ceiling_resumes(world, make):
    [lease] = await make(2, CENT, claimed=1)
    await spend(world, lease, CENT)
    await reserve(world, lease, 1)
    await world.store.release(lease, cause="ceiling")

    await world.store.set_ceiling("batch", "b", 2 * CENT)

    assert (await world.store.batch("b")).ceiling_reached is None
    assert len(await world.store.announce(10)) == 2


async def test_lifting_the_ceiling_resumes_too(world, make):
    [lease] = await make(2, CENT, claimed=1)
    await spend(world, lease, CENT)
    await reserve(world, lease, 1)

    await world.store.set_ceiling("batch", "b", None)

    assert await reserve(world, lease, 1_000 * CENT // 10) == Reserved("c1", 100 * CENT)
    assert len(await world.store.announce(10)) == 1


async def test_what_waits_is_sealed_at_the_ceiling_when_the_batch_asks_for_it(world, make):
    [lease] = await make(3, CENT, on_ceiling="seal", claimed=1)
    await spend(world, lease, CENT)
    await reserve(world, lease, 1)

    assert await world.store.seal_over_ceiling() == 2

    batch = await world.store.batch("b")
    assert dict(batch.outcomes) == {"limit:batch_spend": 2}
    assert batch.states[TaskState.RUNNING] == 1


async def test_what_waits_stays_when_the_batch_is_to_pause(world, make):
    [lease] = await make(3, CENT, claimed=1)
    await spend(world, lease, CENT)
    await reserve(world, lease, 1)

    assert await world.store.seal_over_ceiling() == 0
    assert (await world.store.batch("b")).states[TaskState.QUEUED] == 2


async def test_a_tenants_ceiling_holds_over_its_batches_and_over_no_other(world, make):
    [one] = await make(1, batch="b1", tenant="ours")
    [two] = await make(1, batch="b2", tenant="ours")
    [other] = await make(1, batch="b3", tenant="theirs")
    await world.store.set_ceiling("tenant", "ours", 100 * CENT)
    await spend(world, one, 60 * CENT)

    assert await reserve(world, two, 50 * CENT) == OverLimit("tenant_spend", 40 * CENT, pauses=True)
    assert await reserve(world, other, 500 * CENT) == Reserved("c1", 500 * CENT)
    assert (await world.store.batch("b1")).ceiling_reached == "tenant_spend"
    assert [batch.ceiling_reached for batch in await world.store.batches()] == ["tenant_spend"] * 2 + [None]


async def test_the_lower_of_both_ceilings_decides_what_is_granted(world, make):
    [lease] = await make(1, 50 * CENT)
    await world.store.set_ceiling("tenant", "default", 30 * CENT)

    assert await reserve(world, lease, 100 * CENT, least=1) == Reserved("c1", 30 * CENT)


async def test_a_dead_workers_open_calls_are_charged_at_all_levels(world, make):
    [lease] = await make(1, 100 * CENT)
    await reserve(world, lease, 60 * CENT)
    await world.lose(lease)

    for kind, name in (("batch", "b"), ("tenant", "default")):
        budget = await world.store.budget(kind, name)
        assert (budget.settled_micro_usd, budget.reserved_micro_usd) == (60 * CENT, 0)


async def test_a_budget_says_what_each_model_and_each_outcome_cost(world, make):
    one, two = await make(2, 100 * CENT)
    await spend(world, one, 3 * CENT)
    await spend(world, two, 4 * CENT)
    await reserve(world, two, 5 * CENT)
    await world.store.seal(one, world.passed)

    for kind, name in (("batch", "b"), ("tenant", "default")):
        budget = await world.store.budget(kind, name)
        assert dict(budget.by_model) == {"scripted": 7 * CENT}
        assert dict(budget.by_outcome) == {"verified": 3 * CENT}
        assert budget.reserved_micro_usd == 5 * CENT
    assert (await world.store.budget("batch", "b")).ceiling_micro_usd == 100 * CENT


async def test_a_ceiling_below_what_is_spent_is_refused_and_changes_nothing(world, make):
    [lease] = await make(1, 100 * CENT)
    await spend(world, lease, 3 * CENT)

    with pytest.raises(BadInput, match=r"cannot be below the \$0\.030000"):
        await world.store.set_ceiling("batch", "b", 2 * CENT)

    assert (await world.store.budget("batch", "b")).ceiling_micro_usd == 100 * CENT


async def test_a_ceiling_of_a_batch_that_is_not_there_is_refused(world):
    with pytest.raises(UnknownName, match="nosuch"):
        await world.store.set_ceiling("batch", "nosuch", 1)
    with pytest.raises(UnknownName, match="nosuch"):
        await world.store.budget("batch", "nosuch")
    with pytest.raises(UnknownName, match="nobody"):
        await world.store.budget("tenant", "nobody")
