import pytest

from zubble_queue.contracts.record import BatchInfo, TaskState
from zubble_queue.errors import BadInput, UnknownName


async def test_a_new_task_waits_and_its_first_event_says_accepted(world):
    [task_id] = await world.submit("a")

    task = await world.store.task(task_id)
    [accepted] = await world.store.events(task_id)

    assert (task.state, task.source_id, task.attempt, task.ending) == (TaskState.QUEUED, "a", 0, None)
    assert (accepted.seq, accepted.attempt, accepted.type) == (1, 0, "accepted")
    assert accepted.data == {"task_id": task_id, "batch": "b", "source_id": "a"}
    assert accepted.time == pytest.approx(task.created_at, abs=0.01)


async def test_the_stored_envelope_is_the_submitted_one(world):
    wanted = world.envelope("b", "Aufgabe/ü", labels={"kind": "x"}, instructions="line\nline")
    await world.store.create_batch(BatchInfo(name="b"))
    await world.store.add_tasks("b", [wanted])

    assert await world.store.envelope(wanted.task_id) == wanted


async def test_submitting_again_creates_nothing(world):
    await world.submit("a", "b")
    added = await world.store.add_tasks("b", [world.envelope("b", "b"), world.envelope("b", "a")])

    assert (added.created, added.existing, added.conflicts) == (0, 2, ())
    assert (await world.store.batch("b")).total == 2


async def test_lines_added_later_create_only_the_new_tasks(world):
    await world.submit("a", "b")
    added = await world.store.add_tasks("b", [world.envelope("b", source) for source in ("new", "a", "b")])

    assert (added.created, added.existing) == (1, 2)
    assert (await world.store.batch("b")).states == {"queued": 3}


async def test_a_changed_task_is_named_as_a_conflict_and_keeps_what_it_was(world):
    [task_id] = await world.submit("a")
    before = await world.store.envelope(task_id)

    added = await world.store.add_tasks("b", [world.envelope("b", "a", instructions="other")])

    assert (added.created, added.conflicts) == (0, ("a",))
    assert await world.store.envelope(task_id) == before


async def test_compare_tells_new_from_existing_from_conflict_and_writes_nothing(world):
    [known] = await world.submit("a")
    same, other = world.envelope("b", "a"), world.envelope("b", "a", instructions="other")
    new = world.envelope("b", "z")

    first = await world.store.compare("b", {known: same.content_hash(), new.task_id: new.content_hash()})
    second = await world.store.compare("b", {known: other.content_hash()})

    assert first == {known: "existing", new.task_id: "new"}
    assert second == {known: "conflict"}
    assert (await world.store.batch("b")).total == 1


async def test_more_tasks_than_one_script_takes_keep_their_order(world):
    names = [f"t{number}" for number in range(1_203)]
    await world.submit(*names)

    assert [task.source_id async for task in world.store.tasks("b")] == names


async def test_a_batch_is_loading_until_it_is_opened_and_keeps_its_first_info(world):
    info = BatchInfo(name="b", source="tasks.jsonl", labels={"who": "me"})
    assert await world.store.create_batch(info)
    assert (await world.store.batch("b")).state == "loading"

    await world.store.open_batch("b")

    assert not await world.store.create_batch(BatchInfo(name="b"))
    assert (await world.store.batch("b")).state == "open"
    assert (await world.store.batch("b")).info == info


async def test_a_submission_that_was_cut_off_is_completed_by_submitting_again(world):
    envelopes = [world.envelope("b", source) for source in "abc"]
    await world.store.create_batch(BatchInfo(name="b"))
    await world.store.add_tasks("b", envelopes[:2])

    await world.submit(*"abc")

    batch = await world.store.batch("b")
    assert (batch.state, batch.total) == ("open", 3)


async def test_tasks_of_a_batch_that_is_not_there_are_refused_with_the_known_names(world):
    await world.submit("a", batch="known")

    with pytest.raises(UnknownName, match=r"'missing'; known: known"):
        await world.store.add_tasks("missing", [world.envelope("missing", "a")])
    with pytest.raises(UnknownName, match=r"'missing'; known: known"):
        await world.store.open_batch("missing")


async def test_tasks_for_a_cancelled_batch_are_refused(world):
    await world.submit("a")
    await world.store.cancel_batch("b")

    with pytest.raises(BadInput, match="'b' is cancelled"):
        await world.store.add_tasks("b", [world.envelope("b", "late")])


async def test_an_envelope_too_long_for_redis_is_refused_before_anything_is_written(world):
    await world.store.create_batch(BatchInfo(name="b"))
    digest = "sha256:" + "a" * 64
    files = [{"path": f"file-{n}", "blob": {"ref": digest, "size": 1}} for n in range(900)]

    with pytest.raises(BadInput, match=r"'big': its envelope has [\d,]+ bytes; 65,536 is the most"):
        await world.store.add_tasks("b", [world.envelope("b", "a"), world.envelope("b", "big", files=files)])
    assert (await world.store.batch("b")).total == 0


async def test_a_batch_that_is_opened_after_its_last_task_was_sealed_expires(world):
    await world.store.create_batch(BatchInfo(name="b"))
    await world.store.add_tasks("b", [world.envelope("b", "a")])
    await world.store.seal((await world.claim()).lease, world.passed)
    await world.store.open_batch("b")

    assert (await world.store.batch("b")).state == "done"
    assert await world.admin.ttl(world.keys.batch("b")) > 0


async def test_a_done_batch_that_gets_new_tasks_is_open_again_and_is_kept(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)
    assert (await world.store.batch("b")).state == "done"

    await world.submit("later")

    assert (await world.store.batch("b")).state == "open"
    assert await world.admin.ttl(world.keys.batch("b")) == -1
