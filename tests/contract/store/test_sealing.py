import pytest

from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.record import TaskState
from zubble_queue.errors import LeaseLost
from zubble_queue.stores import codec


async def test_a_seal_ends_the_task_with_what_was_said_and_the_ledgers_usage(world):
    lease = await world.running()
    await world.store.settle(lease, "c1", world.usage(prompt_tokens=100, spend_micro_usd=7))
    ending = Ending(
        stop=Stop.LIMIT_TOKENS,
        verdict=Verdict.PASSED,
        reward={"tests": 0.5},
        reason="max_tokens=1 exceeded",
        evidence={"seen": [], "nested": {"a": None}},
        files_touched=(),
        artifacts={"trajectory": "sha256:" + "0" * 64},
    )
    await world.store.seal(lease, ending)

    task = await world.store.task(lease.task_id)

    assert (task.state, task.outcome, task.lease_until) == (TaskState.SEALED, "verified", None)
    assert task.ending == ending.model_copy(
        update={"usage": world.usage(prompt_tokens=100, spend_micro_usd=7)}
    )
    assert task.sealed_at >= task.claimed_at


async def test_a_seal_moves_every_counter_of_the_batch_in_one_step(world):
    await world.submit("a", "b", "c")
    endings = [
        Ending(
            stop=Stop.SUBMITTED, verdict=Verdict.PASSED, tokens_saved=5, seconds={"model": 1.25, "exec": 1}
        ),
        Ending(stop=Stop.LOOP_TEXT, verdict=Verdict.FAILED, tokens_saved=7, seconds={"model": 0.5}),
    ]
    for ending in endings:
        lease = (await world.claim()).lease
        await world.store.settle(lease, "c", world.usage(completion_tokens=3))
        await world.store.seal(lease, ending)

    batch = await world.store.batch("b")

    assert batch.states == {"queued": 1, "sealed": 2}
    assert batch.outcomes == {"verified": 1, "loop:text": 1}
    assert (batch.tokens_saved, batch.usage.calls, batch.usage.completion_tokens) == (12, 2, 6)
    assert batch.phase_seconds == {"model": 1.75, "exec": 1.0}
    assert batch.state == "open"


async def test_the_time_since_the_last_renewal_is_charged_by_the_seal(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)

    assert int(await world.field(lease.task_id, "wallclock")) > 0


async def test_a_batch_is_done_when_its_last_task_is_sealed(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)

    assert (await world.store.batch("b")).state == "done"


async def test_sealing_again_with_the_same_lease_changes_nothing(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)
    before = await world.store.task(lease.task_id), await world.store.batch("b")
    await world.store.seal(lease, Ending(stop=Stop.GAVE_UP, tokens_saved=9))

    assert (await world.store.task(lease.task_id), await world.store.batch("b")) == before


async def test_a_late_seal_is_refused_after_the_task_was_given_to_another(world):
    lease = await world.running()
    await world.lose(lease)
    newer = (await world.claim()).lease

    with pytest.raises(LeaseLost, match=f"Attempt 1 no longer owns task {lease.task_id}"):
        await world.store.seal(lease, world.passed)
    await world.store.seal(newer, Ending(stop=Stop.GAVE_UP))
    with pytest.raises(LeaseLost):
        await world.store.seal(lease, world.passed)

    assert (await world.store.task(lease.task_id)).outcome == "failed"
    assert (await world.store.batch("b")).outcomes == {"failed": 1}


async def test_nothing_can_be_written_after_the_seal(world):
    lease = await world.running()
    await world.store.seal(lease, world.passed)

    assert not (await world.store.renew(lease)).held
    with pytest.raises(LeaseLost):
        await world.store.append(lease, [world.event(2)])
    with pytest.raises(LeaseLost):
        await world.store.settle(lease, "late", world.usage(spend_micro_usd=1))
    with pytest.raises(LeaseLost):
        await world.store.release(lease, cause="late")


async def test_sealing_a_task_that_is_gone_is_a_lost_lease(world):
    lease = await world.running()
    await world.admin.delete(world.keys.task(lease.task_id))

    with pytest.raises(LeaseLost):
        await world.store.seal(lease, world.passed)


async def test_the_worklog_entry_is_kept_with_the_record(world):
    lease = await world.running()
    await world.store.settle(lease, "c1", world.usage(prompt_tokens=40, completion_tokens=2))
    assert await world.store.worklog(lease.task_id) == ""

    await world.store.seal(lease, Ending(stop=Stop.GAVE_UP, iterations_used=3))

    entry = await world.store.worklog(lease.task_id)
    assert await world.field(lease.task_id, "worklog") == entry
    assert "iterations_used: 3" in entry
    assert "tokens_used: 42" in entry


async def test_a_task_that_the_store_sealed_has_a_worklog_entry_too(world):
    [task_id] = await world.submit("a")
    await world.store.cancel_task(task_id)

    assert "aborted: True (reason: cancelled by the operator)" in await world.store.worklog(task_id)


async def test_an_ending_with_huge_evidence_is_kept_without_it(world):
    lease = await world.running()
    await world.store.seal(lease, Ending(stop=Stop.LOOP_TEXT, evidence={"text": "x" * 100_000}))

    assert (await world.store.task(lease.task_id)).ending.evidence == {"omitted": "evidence"}


async def test_an_ending_that_touched_very_many_files_names_the_first(world):
    lease = await world.running()
    files = tuple(f"folder/{number:06}" for number in range(10_000))
    await world.store.seal(lease, Ending(stop=Stop.GAVE_UP, files_touched=files))

    ending = (await world.store.task(lease.task_id)).ending
    assert ending.files_touched == files[: len(ending.files_touched)] != ()
    assert "files_touched" in ending.evidence["omitted"]
    assert len(await world.field(lease.task_id, "ending")) < codec.ENDING_BYTES
