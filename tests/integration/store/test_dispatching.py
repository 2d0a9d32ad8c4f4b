"""What dispatchers answer over HTTP, and that several of them serve while one leads."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import CannotStart
from zubble_queue.feeder import Feeder
from zubble_queue.settings import Settings
from zubble_worker.dispatching import serve


@pytest.fixture
async def replicas(world, mailbox):
    """Start dispatchers, as many as asked for, each with a feeder and a port of its own."""
    started = []

    async def start(count, address="127.0.0.1", port=0):
        for number in range(count):
            feeder, stop = Feeder(world.store, mailbox, holder=f"d{number}"), asyncio.Event()
            server = serve(world.store, feeder, Settings.load(), address=address, port=port)
            started.append((server, stop, asyncio.create_task(feeder.run(stop))))
        return [f"http://127.0.0.1:{server.port}" for server, *_ in started]

    yield start
    for server, stop, running in started:
        stop.set()
        await running
        await asyncio.to_thread(server.close)


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


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/scaling", 400, "name a pool"),
        ("/scaling?pool=default&slots=0", 400, "from 1 to 1000"),
        ("/scaling?pool=default&slots=many", 400, "from 1 to 1000"),
        ("/scaling?pool=nobody&slots=7", 200, '"value": 0.0'),
        ("/nothing", 404, "there are /healthz, /metrics, /scaling"),
    ],
)
async def test_a_question_is_answered_or_its_mistake_named(replicas, path, status, said):
    [url] = await replicas(1)

    answer = await get(url + path)

    assert answer.status_code == status
    assert said in answer.text


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
    server = serve(own_world.store, feeder, Settings.load(), address="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{server.port}"
    own_server.kill()

    scaling, metrics, health = [
        await get(url + path) for path in ("/scaling?pool=default", "/metrics", "/healthz")
    ]
    await asyncio.to_thread(server.close)
    own_server.start()

    assert scaling.status_code == 503
    assert "value" not in scaling.json()
    assert "zubble_store_up 0.0" in metrics.text
    assert "zubble_pool_runnable_tasks" not in metrics.text
    assert health.status_code == 200
