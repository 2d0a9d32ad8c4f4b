"""What sealed runs leave for later ones: kept by their seal alone, bounded, and forgotten when asked."""

import pytest

from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.memory import MEMORY_ENTRIES, MEMORY_ENTRY_BYTES, MemoryEntry, namespace
from zubble_queue.errors import LeaseLost, UnknownName


def left_by(lease, *, source_id="a", task_type="bugs", **fields):
    trial = JournalEntry(
        step=1, command="make", exit_code=2, result_summary="no rule", category="fix_attempt", time=1.0
    )
    values = {"batch": lease.batch, "repeat": 1, "round": lease.round, "model": "m", "outcome": "verified"}
    return MemoryEntry(
        task_type=task_type,
        task_id=lease.task_id,
        source_id=source_id,
        time=2.0,
        trials=(trial,),
        **{**values, **fields},
    )


async def seal_one(world, source_id, **fields):
    await world.submit(source_id)
    lease = (await world.claim()).lease
    entry = left_by(lease, source_id=source_id, **fields)
    await world.store.seal(lease, world.passed, entry)
    return entry


async def test_what_a_seal_leaves_is_read_in_one_call_oldest_first(world):
    first, second = await seal_one(world, "a"), await seal_one(world, "b")

    assert await world.store.load_facts(namespace("bugs")) == [first, second]
    assert await world.store.load_facts(namespace("other")) == []


async def test_a_seal_that_is_repeated_leaves_one_entry(world):
    await world.submit("a")
    lease = (await world.claim()).lease
    for _ in range(3):
        await world.store.seal(lease, world.passed, left_by(lease))

    assert len(await world.store.memory("bugs")) == 1


async def test_a_seal_that_is_refused_leaves_nothing(world):
    await world.submit("a")
    lease = (await world.claim()).lease
    await world.lose(lease)

    with pytest.raises(LeaseLost):
        await world.store.seal(lease, world.passed, left_by(lease))

    assert await world.store.memories() == []


async def test_a_seal_without_memory_leaves_nothing(world):
    await world.store.seal(await world.running(), world.passed)

    assert await world.store.memories() == []


async def test_only_the_newest_runs_of_a_type_are_remembered(world):
    lease = await world.running()
    for number in range(MEMORY_ENTRIES):
        entry = left_by(lease, source_id=f"old-{number}")
        await world.admin.rpush(world.keys.facts(namespace("bugs")), entry.model_dump_json())
    await world.store.seal(lease, world.passed, left_by(lease, source_id="new"))

    sources = [entry.source_id for entry in await world.store.memory("bugs")]

    assert len(sources) == MEMORY_ENTRIES
    assert (sources[0], sources[-1]) == ("old-1", "new")


async def test_a_run_that_would_leave_too_much_is_refused(world):
    lease = await world.running()
    huge = left_by(lease, model="m" * MEMORY_ENTRY_BYTES)

    with pytest.raises(ValueError, match="a memory of 8,"):
        await world.store.seal(lease, world.passed, huge)


async def test_a_nearly_full_server_seals_without_remembering(world):
    lease = await world.running()
    store = await world.another()
    used = (await world.admin.info("memory"))["used_memory"]
    await world.admin.config_set("maxmemory", int(used * 1.1))
    try:
        await store.seal(lease, world.passed, left_by(lease))
    finally:
        await world.admin.config_set("maxmemory", 0)

    assert (await store.task(lease.task_id)).outcome == "verified"
    assert await store.memories() == []


async def test_what_is_remembered_is_listed_by_type_with_its_size(world):
    entry = await seal_one(world, "a")
    await seal_one(world, "b", task_type="docs")

    bugs, docs = await world.store.memories()

    assert (bugs.task_type, bugs.entries, bugs.bytes) == ("bugs", 1, len(entry.model_dump_json()))
    assert docs.task_type == "docs"
    assert abs(bugs.newest - await world.now()) < 60


async def test_one_task_or_a_whole_type_can_be_forgotten(world):
    for source_id in ("a", "b", "c"):
        await seal_one(world, source_id)
    by_id = (await world.store.memory("bugs"))[1].task_id

    assert await world.store.forget("bugs", "a") == 1
    assert await world.store.forget("bugs", by_id) == 1
    assert [entry.source_id for entry in await world.store.memory("bugs")] == ["c"]
    assert await world.store.forget("bugs") == 1
    assert await world.store.memories() == []
    assert not await world.admin.exists(world.keys.memories)


async def test_an_unknown_type_or_task_is_named_with_what_is_known(world):
    await seal_one(world, "a")

    with pytest.raises(UnknownName, match=r"^Unknown task type 'bug'; known: bugs\.$"):
        await world.store.memory("bug")
    with pytest.raises(UnknownName, match=r"^Unknown task 'z'; known: a\.$"):
        await world.store.forget("bugs", "z")


async def test_memory_lives_as_long_as_records_do_from_its_last_run(world):
    store = await world.another(record_ttl_seconds=7_200)
    lease = await world.running()
    await store.seal(lease, world.passed, left_by(lease))

    for key in (world.keys.facts(namespace("bugs")), world.keys.memories):
        assert 7_100 < await world.admin.ttl(key) <= 7_200


async def test_a_type_whose_memory_has_run_out_leaves_the_list_with_the_next_seal(world):
    await seal_one(world, "a", task_type="forgotten")
    await world.admin.delete(world.keys.facts(namespace("forgotten")))
    await world.admin.zadd(world.keys.memories, {"forgotten": 1})

    assert await world.store.memories() == []
    await seal_one(world, "b")

    assert await world.admin.zrange(world.keys.memories, 0, -1) == ["bugs"]


async def test_what_is_brought_from_elsewhere_is_added_once_and_bounded(world):
    brought = [
        MemoryEntry(
            task_type="task",
            batch="elsewhere",
            task_id=f"{number}-one-0123abcd",
            source_id="one",
            repeat=1,
            round=1,
            model="m",
            outcome="verified",
            time=float(number),
        )
        for number in range(MEMORY_ENTRIES + 5)
    ]

    assert await world.store.remember("task", brought[:2]) == 2
    assert await world.store.remember("task", brought[:2]) == 0
    await world.store.remember("task", reversed(brought))

    kept = await world.store.load_facts("memory:task")
    assert kept == brought[-MEMORY_ENTRIES:]
    assert [view.task_type for view in await world.store.memories()] == ["task"]
