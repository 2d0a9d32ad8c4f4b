"""What `zubble up`, `worker` and `dispatcher` do."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from zubble_queue import registry
from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.cli.machine import check_sandboxes, default_workers
from zubble_queue.cli.report import Exit, Report
from zubble_queue.cli.waiting import stopped_by_signals
from zubble_queue.contracts.envelope import SandboxRequest
from zubble_queue.embedded import Crew, Embedded
from zubble_queue.embedded.crew import kept_models, worker_environment
from zubble_queue.errors import BadInput, CannotStart, StoreUnavailable
from zubble_queue.feeder import Feeder

if TYPE_CHECKING:
    from zubble_queue.contracts.record import WorkerInfo
    from zubble_queue.settings import Settings

_LOOK_SECONDS: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1


async def up(settings: Settings, workers: int | None, slots: int | None, report: Report) -> Exit:
    """The embedded server and local workers, until a signal.

    Raises:
        CannotStart: Workers run here already, a sandbox does not work, or no model is defined.
        InfraError: Workers die again and again.
    """
    if settings.redis_url is not None:
        raise BadInput(["`zubble up` starts its own server, but redis_url names one: use `zubble worker`."])
    embedded = Embedded(settings.embedded_folder)
    models = {**kept_models(embedded.folder), **settings.models}
    if not models:
        raise CannotStart("No model is defined: add a [models.NAME] table to zubble.toml.")
    await check_sandboxes(settings, [SandboxRequest(backend=name) for name in settings.worker.sandboxes])
    async with installation(settings, start=True) as place:
        environment = worker_environment(place.settings, place.url, models, slots)
        with Crew(embedded.folder, environment, workers or default_workers()) as crew:
            with stopped_by_signals() as stop:
                await _serve(place, crew, sorted(models), report, stop)
            report.note("Handing running tasks over; Ctrl-C again leaves at once.")
    report.note(f"Stopped; everything is kept in {settings.embedded_folder}.")
    return Exit.DONE


async def _serve(
    place: Installation, crew: Crew, models: list[str], report: Report, stop: asyncio.Event
) -> None:
    announced = False
    while not stop.is_set():
        place.revive()
        crew.check()
        if not announced and (workers := await _alive(place)):
            announced = True
            slots = sum(worker.slots for worker in workers)
            report.say(f"Up: {len(workers)} workers, {slots} slots, models {', '.join(models)}.")
            report.say("Submit with: zubble batch submit FILE --model NAME")
            report.result({"workers": len(workers), "slots": slots, "models": models, "url": place.url})
        await _pause(stop)


async def _alive(place: Installation) -> list[WorkerInfo]:
    try:
        return await place.store.workers()
    except StoreUnavailable:
        return []


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
    except TimeoutError:
        return


def worker(settings: Settings, parent: int | None, metrics: tuple[str, int] | None) -> int:
    """A worker in this process, with metrics at an address and port. Raises OperatorError."""
    if parent is not None:
        _die_with(parent)
    log_to_stderr()
    host = registry.load("service", "worker")

    def on_ready(info: WorkerInfo) -> None:
        print(f"Worker {info.worker_id} is ready, {info.slots} slots.", file=sys.stderr, flush=True)

    return int(host(settings, on_ready=on_ready, metrics=metrics))


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the process that started us dies, so that no worker is left behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0 or os.getppid() != parent:
        raise CannotStart("The process that started this worker has ended.")


async def dispatcher(
    settings: Settings, report: Report, where: tuple[str, int], *, deletion_cost: bool
) -> Exit:
    """Lead the feeding whenever nobody else does, and answer over HTTP, until a signal."""
    log_to_stderr()
    async with installation(settings) as place:
        publisher = registry.load("service", "publisher")(place.settings)
        feeder = Feeder(
            place.store,
            publisher,
            holder=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
            lease_seconds=settings.lease.lease_seconds,
        )
        beside = registry.load("service", "dispatcher-side")(
            place.store, feeder, place.settings, where=where, deletion_cost=deletion_cost
        )
        with stopped_by_signals() as stop:
            report.note("The dispatcher feeds the queue whenever nobody else does; Ctrl-C stops it.")
            report.note(f"Listening on {beside.url}.")
            await asyncio.gather(feeder.run(stop), beside.run(stop))
    return Exit.DONE
