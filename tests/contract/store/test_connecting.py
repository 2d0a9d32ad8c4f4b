import pytest

from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.errors import CannotStart, StoreUnavailable
from zubble_queue.stores import scripts
from zubble_queue.stores.redis import RedisStore

MUST_NOT_FAIL_WHEN_FULL = {
    *("renew", "reserve", "settle", "append", "checkpoint", "seal", "release", "reap", "lead", "cancel")
}
MUST_FAIL_WHEN_FULL = {"create_batch", "add_tasks", "claim", "clear", "record", "remember", "retry"}
TRIAL = JournalEntry(step=1, command="ls", exit_code=0, result_summary="", category="diagnostic", time=1.0)


@pytest.fixture
async def full(world):
    """Call it to set maxmemory to a share of what is used."""
    used = (await world.admin.info("memory"))["used_memory"]

    async def limit(share):
        await world.admin.config_set("maxmemory", int(used * share))

    yield limit
    await world.admin.config_set("maxmemory", 0)


async def test_scripts_that_the_server_forgot_are_loaded_again(world):
    await world.submit("a")
    await world.admin.script_flush()

    assert len(await world.store.announce(1)) == 1


async def test_two_namespaces_on_one_server_do_not_see_each_other(world):
    await world.submit("a")
    other = await RedisStore.connect(world.url, namespace=f"{world.namespace}x")
    try:
        assert await other.batches() == []
        assert await other.announce(5) == []
    finally:
        await other.aclose()


async def test_a_server_that_is_not_there_is_one_sentence(world):
    with pytest.raises(CannotStart, match=r"^Redis at unix:///nowhere/socket does not answer: .*\.$"):
        await RedisStore.connect("unix:///nowhere/socket")


@pytest.mark.parametrize("url", ["http://example/", "not a url", "redis://host:port/"])
async def test_a_url_that_is_none_is_one_sentence(url):
    with pytest.raises(CannotStart, match="is no Redis URL"):
        await RedisStore.connect(url)


async def test_a_cluster_url_is_refused_before_anybody_is_asked():
    with pytest.raises(CannotStart, match="names a Redis Cluster; give a standalone server"):
        await RedisStore.connect("redis+cluster://nowhere:6379")


async def test_a_wrong_password_is_one_sentence_without_the_password(world):
    await world.admin.execute_command("ACL", "SETUSER", "guarded", "on", ">right", "~*", "&*", "+@all")
    try:
        url = world.url.replace("unix://", "unix://guarded:wrong@")
        with pytest.raises(CannotStart, match="refused the user or password") as refused:
            await RedisStore.connect(url)
        assert "wrong" not in str(refused.value)
    finally:
        await world.admin.execute_command("ACL", "DELUSER", "guarded")


async def test_a_user_who_may_touch_only_the_namespace_is_enough(world):
    rights = [f"~{world.namespace}:*", f"&{world.namespace}:*", "+@all", "-@admin", "-@dangerous", "+info"]
    await world.admin.execute_command("ACL", "SETUSER", "guarded", "on", ">right", *rights)
    store = await RedisStore.connect(
        world.url.replace("unix://", "unix://guarded:right@"), namespace=world.namespace
    )
    try:
        lease = await world.running()
        await store.batch("b")
        await store.seal(lease, world.passed)
        await store.census()
        await store.wait_for_change("b", 30)
        assert (await store.batch("b")).state == "done"
    finally:
        await store.aclose()
        await world.admin.execute_command("ACL", "DELUSER", "guarded")


async def test_a_server_that_may_evict_tasks_is_refused(world):
    await world.admin.config_set("maxmemory-policy", "allkeys-lru")
    await world.admin.config_set("maxmemory", 10**9)
    try:
        with pytest.raises(CannotStart, match=r"may evict tasks \(maxmemory-policy allkeys-lru\)"):
            await RedisStore.connect(world.url)
    finally:
        await world.admin.config_set("maxmemory-policy", "noeviction")
        await world.admin.config_set("maxmemory", 0)


async def test_nothing_big_is_written_above_four_fifths_of_maxmemory(world, full):
    lease = await world.running()
    store = await world.another()
    await full(1.1)

    with pytest.raises(StoreUnavailable, match="more than 80% full: raise maxmemory"):
        await store.create_batch(BatchInfo(name="late"))
    with pytest.raises(StoreUnavailable, match="full"):
        await store.add_tasks("b", [world.envelope("b", "late")])
    await store.record(lease, TRIAL)
    assert await store.journal(lease.task_id) == []
    await store.set_preflighted("0" * 64)
    assert not await store.preflighted("0" * 64)


async def test_a_full_server_still_renews_settles_seals_and_reaps(world, full):
    first = await world.running()
    await world.submit("b", "c")
    second, third = (await world.claim()).lease, (await world.claim()).lease
    await world.store.reserve(first, "c1", tokens=5, micro_usd=5)
    await world.expire(third)
    await full(0.5)

    assert (await world.store.renew(first)).held
    await world.store.settle(first, "c1", world.usage(spend_micro_usd=3))
    await world.store.append(first, [world.event(2)])
    await world.store.reserve(first, "c2", tokens=5, micro_usd=5)
    await world.store.seal(first, world.passed)
    await world.store.release(second, cause="handover")
    assert (await world.store.reap()).requeued == (third.task_id,)
    assert await world.store.lead("feeder", "f", 30)
    assert len(await world.store.announce(5)) == 2

    assert (await world.store.batch("b")).outcomes == {"verified": 1}


async def test_a_full_server_grants_no_new_lease(world, full):
    await world.submit("b")
    header = await world.announce_one()
    await full(0.5)

    with pytest.raises(StoreUnavailable, match="is full: raise maxmemory"):
        await world.store.claim(header, worker_id="w")


def test_the_scripts_say_which_of_them_must_not_fail_when_memory_is_full():
    flagged = {name for name, text in scripts.sources() if text.startswith("#!lua flags=allow-oom\n")}
    reading = {name for name, text in scripts.sources() if text.startswith("#!lua flags=no-writes\n")}
    plain = {name for name, text in scripts.sources() if text.startswith("#!lua\n")}

    assert flagged | plain | reading == set(scripts.names())
    assert flagged >= MUST_NOT_FAIL_WHEN_FULL
    assert plain == MUST_FAIL_WHEN_FULL
