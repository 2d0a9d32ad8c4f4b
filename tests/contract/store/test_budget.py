import pytest

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.record import OverLimit, Reserved
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import LeaseLost

BUDGET = LoopBudget(max_tokens=1_000, max_spend_usd=0.01)


@pytest.fixture
async def lease(world):
    return await world.running(budget=BUDGET)


async def test_a_reservation_within_the_budget_is_granted(world, lease):
    assert await world.store.reserve(lease, "c1", tokens=1_000, micro_usd=10_000) == Reserved("c1", 10_000)


async def test_a_reservation_over_the_tokens_says_how_many_are_left(world, lease):
    await world.store.settle(lease, "c0", world.usage(prompt_tokens=300, completion_tokens=100))
    await world.store.reserve(lease, "c1", tokens=500, micro_usd=0)

    assert await world.store.reserve(lease, "c2", tokens=101, micro_usd=0) == OverLimit("tokens", 100)


async def test_a_reservation_over_the_money_says_how_much_is_left(world, lease):
    await world.store.settle(lease, "c0", world.usage(spend_micro_usd=4_000))
    await world.store.reserve(lease, "c1", tokens=1, micro_usd=5_000)

    assert await world.store.reserve(lease, "c2", tokens=1, micro_usd=1_001) == OverLimit("spend", 1_000)


async def test_asking_again_for_the_same_call_reserves_once(world, lease):
    for _ in range(3):
        assert await world.store.reserve(lease, "c1", tokens=600, micro_usd=0) == Reserved("c1", 0)

    assert await world.store.reserve(lease, "c2", tokens=400, micro_usd=0) == Reserved("c2", 0)


async def test_a_settled_call_frees_what_it_did_not_use(world, lease):
    await world.store.reserve(lease, "c1", tokens=1_000, micro_usd=10_000)
    await world.store.settle(
        lease, "c1", world.usage(prompt_tokens=10, completion_tokens=5, spend_micro_usd=7)
    )

    assert await world.store.reserve(lease, "c2", tokens=985, micro_usd=9_993) == Reserved("c2", 9_993)


async def test_settling_twice_charges_once(world, lease):
    await world.store.reserve(lease, "c1", tokens=100, micro_usd=100)
    spent = world.usage(prompt_tokens=10, completion_tokens=5, spend_micro_usd=7)
    await world.store.settle(lease, "c1", spent)
    await world.store.settle(lease, "c1", spent)

    assert (await world.store.task(lease.task_id)).usage == spent


async def test_a_call_may_cost_more_than_was_reserved_and_the_next_one_is_refused(world, lease):
    await world.store.reserve(lease, "c1", tokens=100, micro_usd=100)
    await world.store.settle(lease, "c1", world.usage(completion_tokens=2_000, spend_micro_usd=20_000))

    assert (await world.store.task(lease.task_id)).usage.spend_micro_usd == 20_000
    assert await world.store.reserve(lease, "c2", tokens=1, micro_usd=0) == OverLimit("tokens", 0)


async def test_overspent_money_refuses_even_a_call_that_costs_nothing(world, lease):
    await world.store.settle(lease, "c1", world.usage(spend_micro_usd=10_001))

    assert await world.store.reserve(lease, "c2", tokens=1, micro_usd=0) == OverLimit("spend", 0)


async def test_a_call_that_was_never_reserved_is_on_the_books_once_settled(world, lease):
    await world.store.settle(lease, "surprise", world.usage(spend_micro_usd=5))

    assert (await world.store.task(lease.task_id)).usage.spend_micro_usd == 5


async def test_every_kind_of_use_is_counted_for_the_task_and_for_its_batch(world, lease):
    spent = Usage(**{name: number for number, name in enumerate(Usage.model_fields, start=1)})
    await world.store.settle(lease, "c1", spent)
    await world.store.settle(lease, "c2", spent)

    assert (await world.store.task(lease.task_id)).usage == spent.plus(spent)
    assert (await world.store.batch("b")).usage == spent.plus(spent)


async def test_a_dead_workers_open_calls_are_charged_in_full_and_counted_as_estimates(world, lease):
    await world.store.reserve(lease, "c1", tokens=100, micro_usd=200)
    await world.store.settle(lease, "c1", world.usage(prompt_tokens=1, spend_micro_usd=1))
    await world.store.reserve(lease, "c2", tokens=300, micro_usd=400)
    await world.lose(lease)

    usage = (await world.claim()).usage

    assert (usage.calls, usage.estimated_calls) == (2, 1)
    assert (usage.tokens, usage.spend_micro_usd) == (301, 401)


async def test_what_a_lost_attempt_spent_counts_against_the_next_one(world, lease):
    await world.store.reserve(lease, "c1", tokens=900, micro_usd=0)
    await world.lose(lease)
    next_lease = (await world.claim()).lease

    assert await world.store.reserve(next_lease, "c2", tokens=101, micro_usd=0) == OverLimit("tokens", 100)


async def test_sealing_charges_the_calls_that_are_still_open(world, lease):
    await world.store.reserve(lease, "c1", tokens=300, micro_usd=400)
    await world.store.seal(lease, world.passed)

    task = await world.store.task(lease.task_id)

    assert (task.usage.tokens, task.usage.spend_micro_usd, task.usage.estimated_calls) == (300, 400, 1)
    assert (await world.store.batch("b")).usage == task.usage


async def test_releasing_charges_the_calls_that_are_still_open(world, lease):
    await world.store.reserve(lease, "c1", tokens=300, micro_usd=400)
    await world.store.release(lease, cause="handover")

    assert (await world.claim()).usage.spend_micro_usd == 400


async def test_a_budget_of_almost_nothing_is_still_at_least_one_micro_dollar(world):
    lease = await world.running(budget=LoopBudget(max_spend_usd=1e-9))

    assert await world.store.reserve(lease, "c1", tokens=1, micro_usd=1) == Reserved("c1", 1)


async def test_money_is_counted_without_binary_rounding(world):
    lease = await world.running(budget=LoopBudget(max_spend_usd=1.005))

    assert await world.store.reserve(lease, "c1", tokens=1, micro_usd=1_005_001) == OverLimit(
        "spend", 1_005_000
    )


async def test_a_lost_attempt_can_neither_reserve_nor_settle(world, lease):
    await world.store.reserve(lease, "c1", tokens=1, micro_usd=1)
    await world.lose(lease)

    with pytest.raises(LeaseLost):
        await world.store.reserve(lease, "c2", tokens=1, micro_usd=1)
    with pytest.raises(LeaseLost):
        await world.store.settle(lease, "c1", world.usage())
