"""The worker process: one event loop in the main thread, Celery's consumer in another, signals ours.

Stop order: take no more messages; checkpoint every attempt; let them go on until the drain deadline; hand
the rest over; withdraw; close. A second signal kills the sandboxes and exits at once, and so does what still
hangs some seconds after the handover; exit never waits on Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

import structlog

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.feeder import Feeder
from zubble_queue.settings import Settings
from zubble_worker.app import CeleryPublisher, Consumer
from zubble_worker.http_server import Bridge, HttpServer
from zubble_worker.lag import watch_lag
from zubble_worker.limits import make_room_for_files
from zubble_worker.pool_metrics import FeederMetrics
from zubble_worker.service import Service
from zubble_worker.tasks import Body
from zubble_worker.tools import Tools, build

_log = structlog.get_logger(__name__)
_HANDOVER_SECONDS: Final = 25.0
"""Spot nodes give 30 seconds; snapshots of every agent must be done by then."""
_LAST_SECONDS: Final = 5.0


def main(
    settings: Settings,
    *,
    on_ready: Callable[[WorkerInfo], None] | None = None,
    metrics: tuple[str, int] | None = None,
) -> int:
    """Run a worker until it is told to stop. Returns the exit code.

    Args:
        settings: Of the worker.
        on_ready: Called when it takes tasks.
        metrics: Address and port where its metrics are served; None: nowhere.

    Raises:
        OperatorError: It cannot start: no Redis, no allowed sandbox works here, a model is wrong.
    """
    return asyncio.run(_Host(settings, on_ready, metrics).run())


class _Host:
    def __init__(
        self,
        settings: Settings,
        on_ready: Callable[[WorkerInfo], None] | None,
        metrics: tuple[str, int] | None,
    ) -> None:
        self._settings, self._on_ready, self._metrics = settings, on_ready, metrics
        self._stop_asked = asyncio.Event()
        self._consumer_ended = asyncio.Event()
        self._withdrawn = asyncio.Event()

    async def run(self) -> int:
        worker = self._settings.worker
        make_room_for_files(worker.slots, egress="allowlist" in worker.networks)
        tools, info = await build(self._settings)
        service = Service(tools, info)
        tools.metrics.watch(slots=info.slots, busy=lambda: service.busy, draining=lambda: service.draining)
        feeder = self._feeder(tools, info) if self._settings.worker.feeder else None
        self._serve(tools, feeder)
        self._listen_to_signals()
        background = [
            asyncio.create_task(service.keep_registered(self._withdrawn)),
            asyncio.create_task(watch_lag(self._withdrawn, lambda: service.busy, tools.metrics.lag)),
        ]
        if feeder:
            background.append(asyncio.create_task(feeder.run(self._withdrawn)))
        consumer = self._consumer(service, info)
        consumer.start()
        if self._on_ready:
            self._on_ready(info)
        await _first(self._stop_asked, self._consumer_ended)
        code = 0 if self._stop_asked.is_set() else 3
        await tools.cool()
        await self._drain(service, consumer)
        self._withdrawn.set()
        await asyncio.wait(background, timeout=_LAST_SECONDS)
        for provider in tools.providers.values():
            await provider.reap()
        if tools.tracing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(tools.tracing.flush), _LAST_SECONDS)
        _leave(code)
        return code

    def _serve(self, tools: Tools, feeder: Feeder | None) -> None:
        if self._metrics is None:
            return
        registry, bridge = tools.metrics.registry, Bridge(asyncio.get_running_loop())
        if feeder:
            registry.register(FeederMetrics(feeder))
        address, port = self._metrics
        server = HttpServer(address, port, registry, {"/healthz": bridge.health})
        _log.info("metrics", action="metrics_served", address=address, port=server.port)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop_asked.is_set():
            _log.warning("second signal; leaving at once", action="worker_killed")
            _leave(3)
        self._stop_asked.set()

    def _feeder(self, tools: Tools, info: WorkerInfo) -> Feeder:
        return Feeder(
            tools.store,
            CeleryPublisher(self._settings),
            holder=info.worker_id,
            lease_seconds=self._settings.lease.lease_seconds,
        )

    def _consumer(self, service: Service, info: WorkerInfo) -> Consumer:
        loop = asyncio.get_running_loop()
        return Consumer(
            self._settings,
            name=f"zubble@{info.worker_id}",
            needs=info.needs,
            body=Body(service, loop),
            on_end=lambda: loop.call_soon_threadsafe(self._consumer_ended.set),
        )

    async def _drain(self, service: Service, consumer: Consumer) -> None:
        """Save every agent at once, let them go on until the deadline, hand over those that still run."""
        service.drain()
        consumer.stop()
        _log.info("draining", action="worker_draining", busy=service.busy)
        saving = asyncio.create_task(service.save())
        await service.idle(self._settings.worker.drain_seconds)
        saving.cancel()
        service.hand_over()
        await service.idle(_HANDOVER_SECONDS)
        try:
            await asyncio.wait_for(self._consumer_ended.wait(), _LAST_SECONDS)
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
