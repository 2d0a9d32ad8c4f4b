"""Sandboxes that are open before anybody asks, with real ones of the local backend."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from zubble_queue.contracts.sandbox import MIB, SandboxSpec, shell
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox.local import LocalProvider
from zubble_sandbox.pool import WarmProvider
from zubble_sandbox.records import Records, kill_marked

SPEC = SandboxSpec(name="first", owner="worker", max_life_seconds=600.0)


class Counting:
    """A provider that remembers what it was asked to open."""

    name = "local"

    def __init__(self, folder) -> None:
        self.inner, self.records = LocalProvider(folder=folder), Records(folder)
        self.opened: list[str] = []
        self.ready: set[str] = set()
        self.opening = asyncio.Event()
        self.opening.set()

    async def open(self, spec):
        self.opened.append(spec.name)
        await self.opening.wait()
        box = await self.inner.open(spec)
        self.ready.add(spec.name)
        return box

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @property
    def names(self) -> list[str]:
        """Of every sandbox that is open, but for those that are just being opened ahead."""
        names = {record.name for record in self.records}
        return sorted(name for name in names if name in self.ready or not name.startswith("warm"))


@pytest.fixture
async def make(tmp_path):
    """Makes pools that are closed at the end; nothing may be left then."""
    made = []

    def make(size=1, **options):
        counting = Counting(tmp_path / "records")
        pool = WarmProvider(counting, size, **options)
        made.append((pool, counting))
        return pool, counting

    yield make
    for pool, counting in made:
        await pool.aclose()
        assert counting.names == []


async def until(condition, what: str) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - of another program, which sets no event
            await asyncio.sleep(0.01)
    assert condition(), what


def named(name: str, **changes) -> SandboxSpec:
    return replace(SPEC, name=name, **changes)


async def test_the_second_of_a_kind_is_open_already_and_takes_the_name(make):
    pool, inner = make()
    first = await pool.open(SPEC)
    await until(lambda: inner.names == ["first", "warm-1"], "one is open ahead")
    second = await pool.open(named("second"))
    assert second.spec == named("second")
    assert "second" in inner.names, "its record has the name, too"
    assert (await second.exec(shell("pwd; ls -A; echo on"))).stdout.endswith(b"on\n")
    await until(lambda: "warm-2" in inner.names, "the next is open ahead")
    assert inner.opened == ["first", "warm-1", "warm-2"]
    await first.destroy()
    await second.destroy()


async def test_none_is_used_twice(make):
    pool, inner = make()
    for number in range(4):
        box = await pool.open(named(f"task-{number}"))
        assert await box.list() == []
        await box.write("left", b"behind")
        await box.destroy()
        await until(lambda: any(name.startswith("warm") for name in inner.names), "the next is open ahead")


async def test_another_kind_is_not_served(make):
    pool, inner = make(size=2)
    await (await pool.open(SPEC)).destroy()
    await until(lambda: len(inner.names) == 2, "two are open ahead")
    for changes in ({"memory_bytes": 7 * MIB}, {"env": {"A": "1"}}, {"network": "open"}, {"owner": "other"}):
        box = await pool.open(named("other", **changes))
        assert inner.opened[-1] == "other", changes
        assert box.spec == named("other", **changes)
        await box.destroy()


async def test_there_are_never_more_than_the_pool_may_hold(make):
    pool, inner = make(size=3)
    most = 0
    for number in range(6):
        box = await pool.open(named("task", pids=100 + number % 5))
        for _ in range(30):
            most = max(most, sum(name.startswith("warm") for name in inner.names))
            await asyncio.sleep(0.01)
        await box.destroy()
    await until(lambda: len(inner.names) == 3, "it is full")
    assert most <= 4, "one may be closing while the next opens"


async def test_the_kinds_asked_for_last_share_the_room(make):
    pool, inner = make(size=3)
    for name, pids in (("a", 101), ("b", 102)):
        await (await pool.open(named(name, pids=pids))).destroy()
    await until(lambda: len(inner.names) == 3, "it is full")
    opened = len(inner.opened)
    for pids in (101, 102, 101, 102):
        await (await pool.open(named("ready", pids=pids))).destroy()
        await until(lambda: len(inner.names) == 3, "it is full again")
    assert "ready" not in inner.opened[opened:]
    assert len(inner.opened) == opened + 4, "one for each that was taken"


async def test_what_is_too_old_is_destroyed_and_so_is_what_nobody_asks_for(make):
    pool, inner = make(size=1, max_age_seconds=0.4)
    await (await pool.open(SPEC)).destroy()
    await until(lambda: inner.names == ["warm-1"], "one is open ahead")
    await until(lambda: inner.names == [], "nobody asked for it")
    again = await pool.open(named("again"))
    assert inner.opened[-1] == "again"
    await again.destroy()


async def test_one_that_died_meanwhile_is_passed_over(make):
    pool, inner = make(size=1)
    await (await pool.open(SPEC)).destroy()
    await until(lambda: inner.names == ["warm-1"], "one is open ahead")
    (record,) = inner.records
    assert kill_marked(record.token)
    box = await pool.open(named("second"))
    assert (await box.exec(shell("echo on"))).stdout == b"on\n"
    assert inner.opened[1:3] == ["warm-1", "second"]
    await box.destroy()


async def test_files_of_a_check_are_opened_ahead_from_the_second_time_on(make):
    pool, inner = make(size=1)
    with_files = {"readonly_files": {"/verify/check": b"1"}}
    for name in ("a", "b"):
        await (await pool.open(named(name, **with_files))).destroy()
        await (await pool.open(named(f"{name}-other", readonly_files={"/verify/x": name.encode()}))).destroy()
    await until(lambda: inner.names == ["warm-1"], "the kind that came twice is open ahead")
    box = await pool.open(named("c", **with_files))
    assert await box.read("/verify/check") == b"1"
    assert "c" not in inner.opened
    await box.destroy()


async def test_a_kind_that_cannot_be_opened_fails_for_those_who_ask_and_nobody_else(make):
    pool, inner = make(size=1)
    for _ in range(2):
        with pytest.raises(JobError):
            await pool.open(named("a", network="allowlist"))
    await (await pool.open(SPEC)).destroy()
    await until(lambda: inner.names == ["warm-1"], "others are open ahead")


async def test_closing_while_one_opens_leaves_nothing(make):
    pool, inner = make(size=2)
    inner.opening.clear()
    opening = asyncio.create_task(pool.open(SPEC))
    await asyncio.sleep(0)
    inner.opening.set()
    box = await opening
    inner.opening.clear()
    await until(lambda: "warm-1" in inner.opened, "the next is being opened")
    await pool.aclose()
    await box.destroy()
    assert inner.names == []
    inner.opening.set()
    late = await pool.open(named("late"))
    assert inner.opened[-1] == "late"
    await late.destroy()


async def test_the_rest_is_the_other_providers(make):
    pool, _ = make()
    assert pool.name == "local"
    assert (await pool.probe()).available
    assert await pool.reap() == 0
    with pytest.raises(SandboxUnavailable):
        await pool.attach("zubble-" + "0" * 32)
