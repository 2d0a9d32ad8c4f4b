"""What befalls messages and submissions: doubled, deleted by hand, repeated after a lost answer."""

from __future__ import annotations

import json
import time
from typing import Final

from benchmarks.chaos.place import NoTarget, wait_for
from benchmarks.chaos.site import NAMESPACE, NEED, Site
from benchmarks.chaos.tap import Side, Trap, sha_of
from zubble_queue.contracts.envelope import Header
from zubble_worker.app import CeleryPublisher, queue_name

_DOUBLES: Final = 5
_HELD_SECONDS: Final = 60.0
"""How long a submission may take to reach the server, on a busy machine."""


async def message_doubled(site: Site) -> str:
    """Publish again what announced running tasks, and what announces waiting ones."""
    running = await site.server.ask("ZRANGE", site.keys.leases, 0, _DOUBLES - 1)
    waiting = await site.server.ask("ZRANGE", site.keys.announced, 0, _DOUBLES - 1)
    headers = [await _header(site, task_id, ahead=0) for task_id in running]
    headers += [await _header(site, task_id, ahead=1) for task_id in waiting]
    if not headers:
        raise NoTarget("no task was running or announced")
    publisher = CeleryPublisher(site.settings())
    try:
        await publisher.publish(headers)
    finally:
        await publisher.aclose()
    return f"{len(running)} of running tasks, {len(waiting)} of waiting ones"


async def message_deleted(site: Site) -> str:
    """Take messages off Celery's list by hand, at least half of them."""
    key = f"{NAMESPACE}:celery:{queue_name(NAMESPACE, NEED.key)}"

    async def take() -> int:
        waiting = int(await site.server.ask("LLEN", key))
        taken = await site.server.ask("LPOP", key, -(-waiting // 2)) if waiting else None
        return len(taken or ())

    return f"{await wait_for(take, 2 * site.lease, 'no message waited')} messages"


async def submit_retried(site: Site) -> str:
    """Submit a file again because the first answer did not come; the first one is then let go, late.

    Either its command had not reached the server when the second came, or its answer had not come back.
    """
    if not site.slices:
        raise NoTarget("no file was left to submit")
    file = site.slices.pop()
    side: Side = site.chance.choice(("request", "reply"))
    began = time.time()
    first = await site.submit(file, url=site.tap.url)
    trap = Trap(sha_of("add_tasks"), side, lambda _: None, wants=lambda pid: pid == first.pid)
    if not await site.tap.catch(trap, _HELD_SECONDS):
        first.kill()
        raise NoTarget("the submission did not reach the server in time")
    second = await site.submitted(file)
    trap.released.set()
    answer, _ = await first.communicate()
    both = json.loads(answer or "{}").get("created", 0) + second["created"]
    return f"{side} withheld for {time.time() - began:.1f} s, {both} tasks created by both together"


async def _header(site: Site, task_id: str, *, ahead: int) -> Header:
    store = await site.store()
    try:
        view = await store.task(task_id)
        return (await store.envelope(task_id)).header(epoch=view.attempt + ahead, round_=view.round)
    finally:
        await store.aclose()
