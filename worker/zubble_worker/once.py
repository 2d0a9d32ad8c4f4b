"""One task, here, now: `zubble run` claims it in this process, without Celery, on the same code path."""

from __future__ import annotations

from zubble_queue.contracts.envelope import Header
from zubble_queue.settings import Settings
from zubble_worker.exits import Done
from zubble_worker.service import Service
from zubble_worker.tools import build


async def run_once(settings: Settings, header: Header) -> Done:
    """Claim the announced attempt, carry it to its end and return how it ended.

    The caller has submitted the task and taken its header from the store's `announce`.
    """
    tools, info = await build(settings)
    try:
        return await Service(tools, info).run(header)
    finally:
        for model in tools.models.values():
            await model.aclose()
        await tools.cool()
        for provider in tools.providers.values():
            await provider.reap()
        await tools.store.aclose()
