"""Celery's consumer over a real server: it takes messages, and keeps nothing of them."""

from __future__ import annotations

import asyncio
import gc

from kombu.transport.redis import QoS

from zubble_queue.contracts.envelope import Header
from zubble_queue.settings import Settings
from zubble_worker.app import CeleryPublisher, Consumer

from .conftest import wait_until


async def test_what_was_taken_leaves_no_trace_in_the_worker_or_in_redis(install):
    zubble = await install({})
    settings = Settings.load({"redis_url": zubble.url})
    headers = [
        Header(task_id=f"{number}-a-00000000", batch="b", source_id="a", attempt=1, model="m")
        for number in range(5)
    ]
    seen: list[str] = []
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer = Consumer(
        settings,
        name="zubble@test",
        needs=[headers[0].need.key],
        body=lambda header: seen.append(header.task_id) or "done",
        on_end=lambda: loop.call_soon_threadsafe(ended.set),
    )
    publisher = CeleryPublisher(settings)
    consumer.start()
    await publisher.publish(headers)

    async def all_seen() -> bool:
        return len(seen) == len(headers)

    await wait_until(all_seen, "all messages are taken")
    tags = [
        tag
        for thing in gc.get_objects()
        if isinstance(thing, QoS)
        for tag in (*thing._dirty, *thing._delivered)
    ]
    assert tags == []
    assert not await zubble.store._client.keys("*unacked*")
    consumer.stop()
    await asyncio.wait_for(ended.wait(), 30)
    await publisher.aclose()
