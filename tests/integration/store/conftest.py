"""The servers and the world of the store's contract tests, and a server that a test may kill."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from zubble_queue.contracts.envelope import Header
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.feeder import Feeder

_CONTRACT = Path(__file__).parents[2] / "contract" / "store" / "conftest.py"
_spec = importlib.util.spec_from_file_location("store_contract_conftest", _CONTRACT)
assert _spec is not None
assert _spec.loader is not None
contract = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = contract
_spec.loader.exec_module(contract)

server = contract.server
world = contract.world
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Mailbox:
    """A publisher that keeps what it is given, loses it, or fails."""

    def __init__(self) -> None:
        self.messages: list[Header] = []
        self.sent: list[Header] = []
        self.failures_left = 0
        self.losing = False
        self.closed = False

    async def publish(self, headers: Sequence[Header]) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise OSError("the broker is away")
        self.sent += headers
        if not self.losing:
            self.messages += headers

    async def depth(self, need: str) -> int:
        return sum(header.need.key == need for header in self.messages)

    async def aclose(self) -> None:
        self.closed = True


class Farm:
    """Feeders in the background, and workers that are only registered."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._running: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    def start(self, holder: str, mailbox: Mailbox, *, lease_seconds: float = 60.0, store: Any = None) -> Any:
        feeder = Feeder(store or self.world.store, mailbox, holder=holder, lease_seconds=lease_seconds)
        stop = asyncio.Event()
        task = asyncio.create_task(feeder.run(stop))
        self._running.append((stop, task))
        return stop, task

    async def worker(self, worker_id: str, slots: int, **fields: Any) -> None:
        serves = {"models": {"scripted": "hash"}, "sandboxes": ("bubblewrap",), **fields}
        info = WorkerInfo(worker_id=worker_id, version="1", host="h", pid=1, slots=slots, busy=0, **serves)
        await self.world.store.register(info, ttl_seconds=600)

    async def close(self) -> None:
        for stop, task in self._running:
            stop.set()
            if not task.cancelled():
                await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
async def farm(world: Any) -> AsyncIterator[Farm]:
    running = Farm(world)
    yield running
    await running.close()


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.redis) for kind in contract.servers.KINDS])
def own_server(request: pytest.FixtureRequest, missing_part: Callable[[str], NoReturn]) -> Iterator[Any]:
    """A server with an append-only file, for one test alone."""
    try:
        with contract.servers.started(request.param, *DURABLE) as running:
            yield running
    except contract.servers.NotInstalled as missing:
        missing_part(str(missing))


@pytest.fixture
async def own_farm(own_world: Any) -> AsyncIterator[Farm]:
    running = Farm(own_world)
    yield running
    await running.close()


@pytest.fixture
async def own_world(own_server: Any) -> AsyncIterator[Any]:
    """A world on a server that the test may kill."""
    small_world = await contract.world_module.World.create(own_server.url, "own")
    yield small_world
    await small_world.close()
