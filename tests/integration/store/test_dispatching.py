"""What dispatchers answer over HTTP, and that several of them serve while one leads."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import CannotStart
from zubble_queue.feeder import Feeder
from zubble_queue.settings import Settings
from zubble_worker.dispatching import Beside


@pytest.fixture
async def replicas(world, mailbox):
    """Start dispatchers, as many as asked for, each with a feeder and a port of its own."""
    started = []

    async def start(count, port=0):
        for number in range(count):
            feeder, stop = Feeder(world.store, mailbox, holder=f"d{number}"), asyncio.Event()
            beside = Beside(world.store, feeder, Settings.load(), where=("127.0.0.1", port))
            running = asyncio.gather(feeder.run(stop), beside.run(stop))
            started.append((beside.url, stop, running))
        return [url for url, *_ in started]

    yield start
    for _, stop, running in started:
        stop.set()
        await running


async def get(url, **query):
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.get(url, params=query or None)


async def ask_all(urls, path, **query):
    return [await get(url + path, **query) for url in urls]


async def test_two_replicas_serve_the_same_numbers_while_one_leads(world, replicas):
    await world.submit("a", "b", "c")
    await world.store.register(
        WorkerInfo(
            worker_id="w",
            version="1",
            host="h",
            pid=1,
            slots=2,
            busy=0,
            models={"scripted": "hash"},
            sandboxes=("bubblewrap",),
        ),
        ttl_seconds=600,
    )
    urls = await replicas(2)

    async def one_leads():
        leads = [answer.text.count("zubble_feeder_leads 1.0") for answer in await ask_all(urls, "/metrics")]
        return sum(leads) == 1

    await world.until(one_leads)
    scaling = [answer.json() for answer in await ask_all(urls, "/scaling", pool="default")]
    metrics = await ask_all(urls, "/metrics")

    assert {(told["value"], told["runnable"], told["slots_per_worker"]) for told in scaling} == {(1.5, 3, 2)}
    for answer in metrics:
        assert 'zubble_pool_runnable_tasks{pool="default"} 3.0' in answer.text
        assert 'zubble_batch_backlog_tasks{batch="b",pool="default"} 3.0' in answer.text
    assert [answer.text for answer in await ask_all(urls, "/healthz")] == ["ok\n", "ok\n"]


async def test_a_question_is_answered_or_its_mistake_named(replicas):
    [url] = await replicas(1)

    for path, status, said in (
        ("/scaling", 400, "name a pool"),
        ("/scaling?pool=default&slots=0", 400, "from 1 to 1000"),
        ("/scaling?pool=default&slots=many", 400, "from 1 to 1000"),
        ("/scaling?pool=nobody&slots=7", 200, '"value": 0.0'),
        ("/nothing", 404, "there are /healthz, /metrics, /scaling"),
    ):
        answer = await get(url + path)

        assert answer.status_code == status, path
        assert said in answer.text, path


async def test_nothing_can_be_sent(replicas):
    [url] = await replicas(1)

    async with httpx.AsyncClient() as client:
        assert (await client.post(f"{url}/scaling?pool=default")).status_code == 405


async def test_an_address_that_is_taken_is_one_sentence(replicas):
    [url] = await replicas(1)

    with pytest.raises(CannotStart, match=r"127\.0\.0\.1:\d+ is not to be had: "):
        await replicas(1, port=int(url.rpartition(":")[2]))


async def test_without_redis_no_number_is_told_and_the_process_is_healthy(own_world, own_server, mailbox):
    feeder = Feeder(own_world.store, mailbox, holder="d")
    beside, stop = Beside(own_world.store, feeder, Settings.load(), where=("127.0.0.1", 0)), asyncio.Event()
    own_server.kill()

    scaling, metrics, health = [
        await get(beside.url + path) for path in ("/scaling?pool=default", "/metrics", "/healthz")
    ]
    stop.set()
    await beside.run(stop)
    own_server.start()

    assert scaling.status_code == 503
    assert scaling.json() == {"schema": "zubble.scaling/1", "error": "Redis does not answer"}
    assert "zubble_store_up 0.0" in metrics.text
    assert "zubble_pool_runnable_tasks" not in metrics.text
    assert health.status_code == 200
