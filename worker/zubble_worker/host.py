"""The worker process: one event loop in the main thread, Celery's consumer in another, signals ours.

Stop order: take no more messages; let attempts go on until the drain deadline; hand the rest over; withdraw;
close. A second signal, or the drain deadline plus five seconds, kills the sandboxes and exits at once; exit
never waits on Redis.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from zubble_queue.feeder import Feeder

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.settings import Settings
from zubble_worker.app import CeleryPublisher, Consumer
from zubble_worker.service import Service
from zubble_worker.tasks import Body
from zubble_worker.tools import build

_log = structlog.get_logger(__name__)
_HANDOVER_SECONDS: Final = 25.0
"""Spot nodes give 30 seconds; snapshots of every agent must be done by then."""
_LAST_SECONDS: Final = 5.0


def main(settings: Settings, *, on_ready: Callable[[WorkerInfo], None] | None = None) -> int:
    """Run a worker until it is told to stop. Returns the exit code.

    Raises:
        OperatorError: It cannot start: no Redis, no allowed sandbox works here, a model is wrong.
    """
    return asyncio.run(_Host(settings, on_ready).run())


@dataclass
class _Stopping:
    """How far the stop has got."""

    asked: asyncio.Event
    signals: int = 0


class _Host:
    def __init__(self, settings: Settings, on_ready: Callable[[WorkerInfo], None] | None) -> None:
        self._settings, self._on_ready = settings, on_ready
        self._stopping = _Stopping(asyncio.Event())

    async def run(self) -> int:
        settings = self._settings
        tools, info = await build(settings)
        service = Service(tools, info)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        consumer = Consumer(
            settings,
            name=f"zubble@{info.worker_id}",
            body=Body(service, loop),
            on_end=lambda: loop.call_soon_threadsafe(ended.set),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        gone = asyncio.Event()
        background = [asyncio.create_task(service.keep_registered(gone))]
        if settings.worker.feeder:
            feeder = Feeder(
                tools.store,
                CeleryPublisher(settings),
                holder=info.worker_id,
                lease_seconds=settings.lease.lease_seconds,
            )
            background.append(asyncio.create_task(feeder.run(gone)))
        consumer.start()
        if self._on_ready:
            self._on_ready(info)
        await _first(self._stopping.asked, ended)
        code = 0 if self._stopping.asked.is_set() else 3
        await self._drain(service, consumer, ended)
        gone.set()
        await asyncio.wait(background, timeout=_LAST_SECONDS)
        for provider in tools.providers.values():
            await provider.reap(keep_owners=frozenset())
        _leave(code)
        return code

    def _on_signal(self) -> None:
        self._stopping.signals += 1
        self._stopping.asked.set()
        if self._stopping.signals > 1:
            _log.warning("second signal; leaving at once", action="worker_killed")
            _leave(3)

    async def _drain(self, service: Service, consumer: Consumer, ended: asyncio.Event) -> None:
        """Let running attempts end, hand over those that do not, and give up on what then still hangs."""
        service.draining = True
        consumer.stop()
        _log.info("draining", action="worker_draining", busy=service.busy)
        await service.idle(self._settings.worker.drain_seconds)
        service.hand_over()
        await service.idle(_HANDOVER_SECONDS)
        try:
            await asyncio.wait_for(ended.wait(), _LAST_SECONDS)
        except TimeoutError:
            _log.warning("the consumer did not end in time", action="consumer_hangs")


async def _first(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _leave(code: int) -> None:
    """Exit without waiting for threads or Redis; sandboxes die with this process."""
    os._exit(code)
