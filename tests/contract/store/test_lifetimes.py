"""After a run every key is one of the table and lives as long as it says; see `world` for the audit."""

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.memory import MemoryEntry
from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.question import Answer, Question
from zubble_queue.contracts.record import Checkpoint, WorkerInfo
from zubble_queue.stores.keys import KEY_KINDS, Lifetime
from zubble_queue.stores.limits import Place

WORKER = WorkerInfo(worker_id="w", version="1", host="h", pid=1, slots=4, busy=0)
TRIAL = JournalEntry(step=1, command="ls", exit_code=0, result_summary="", category="diagnostic", time=1.0)


def remembered(lease):
    return MemoryEntry(
        task_type="task",
        batch=lease.batch,
        task_id=lease.task_id,
        source_id="sealed",
        repeat=1,
        round=1,
        model="m",
        outcome="verified",
        time=1.0,
        trials=(TRIAL,),
    )


async def use_everything(world):
    """Tasks sealed, postponed, asking, waiting and cancelled; every kind of key written."""
    await world.store.lead("feeder", "f", 60)
    await world.store.contact(30.0)
    await world.store.register(WORKER, ttl_seconds=60)
    await world.store.lead("other", "f", 60)
    await world.store.resign("other", "f")
    ids = await world.submit("sealed", "postponed", "running", "waiting", "cancelled", batch="open")
    await world.store.cancel_task(ids[4])
    await world.store.retry_tasks("open", ids[4:])
    await world.store.cancel_task(ids[4])
    lease = (await world.claim()).lease
    await world.store.reserve(lease, "c1", tokens=1, micro_usd=1)
    await world.store.settle(lease, "c1", world.usage())
    await world.store.append(lease, [world.event(2)])
    await world.store.record(lease, TRIAL)
    await world.store.checkpoint(
        lease, Checkpoint(seq=1, segments=(BlobRef(ref="sha256:" + "0" * 64, size=1),))
    )
    await world.store.set_preflighted("0" * 64)
    await world.store.seal(lease, world.passed, remembered(lease))
    config = ModelConfig(base_url="http://127.0.0.1:1/v1", price="free", concurrency=1)
    await world.store.admit(Place("m", "slot", 1), config)
    for _ in range(10):
        await world.store.leave(Place("other", "slot", 1), config, TryEnd("failed"))
    await world.store.postpone((await world.claim()).lease, cause="no endpoint")
    nobody = Answer(text="decide", by="deadline")
    question = Question(question_id="q", kind="question", cause="agent", text="?", unanswered=nobody)
    await world.store.ask((await world.claim()).lease, question, 60.0)


async def test_a_run_writes_keys_of_every_kind_and_of_no_other(world):
    await use_everything(world)
    await world.submit("x", batch="second")
    await world.announce_one()

    found = [key async for key in world.admin.scan_iter(f"{world.namespace}:*")]

    assert {world.keys.kind(key) for key in found} == set(KEY_KINDS)


async def test_the_audit_finds_a_key_that_lives_too_long(world):
    await use_everything(world)
    assert await world.keys_that_break_the_table() == []
    audit = await world.store.audit()
    assert (audit.wrong, audit.keys > 10) == ([], True)
    [sealed, *_] = [task.task_id async for task in world.store.tasks("open", outcome="verified")]

    broken = [world.keys.task(sealed), world.keys.task(sealed, "events"), world.keys.leader("feeder")]
    for key in broken:
        await world.admin.persist(key)
    unknown = f"{world.namespace}:1:unheard-of"
    await world.admin.set(unknown, "1")

    assert set(await world.keys_that_break_the_table()) == {*broken, unknown}
    assert set((await world.store.audit()).wrong) == {*broken, unknown}
    for key in (*broken, unknown):
        await world.admin.expire(key, 60)
    await world.admin.delete(unknown)


async def test_sealed_records_are_kept_for_the_time_that_was_asked_for(world):
    store = await world.another(record_ttl_seconds=7_200)
    lease = await world.running()
    await store.append(lease, [world.event(2)])
    await store.seal(lease, Ending(stop=Stop.GAVE_UP))

    for key in (world.keys.task(lease.task_id), world.keys.task(lease.task_id, "events")):
        assert 7_100 < await world.admin.ttl(key) <= 7_200
    assert await world.admin.ttl(world.keys.batch("b")) > 7_200


async def test_the_live_events_of_a_task_whose_trajectory_is_kept_go_within_the_hour(world):
    lease = await world.running()
    ending = Ending(stop=Stop.GAVE_UP, artifacts={"trajectory": "sha256:" + "0" * 64})
    await world.store.seal(lease, ending)

    assert 0 < await world.admin.ttl(world.keys.task(lease.task_id, "events")) <= 3_600
    assert await world.admin.ttl(world.keys.task(lease.task_id)) > 3_600


async def test_when_all_records_have_expired_the_indexes_are_empty_again_and_the_tenants_account_stays(world):
    await use_everything(world)
    await world.store.cancel_batch("open")
    await world.expire_all()
    await world.store.reap()
    expiring = [
        key
        async for key in world.admin.scan_iter(f"{world.namespace}:*")
        if world.keys.kind(key).lifetime not in {Lifetime.NEVER, Lifetime.ACCOUNT}
    ]
    for key in expiring:
        assert await world.admin.ttl(key) > 0, key
        await world.admin.delete(key)
    await world.admin.zadd(world.keys.workers, {"w": 1})

    await world.store.census()

    left = [key async for key in world.admin.scan_iter(f"{world.namespace}:*")]
    assert left == [world.keys.tenant("default")]
