"""The baseline as the campaign installs it, and the faults that reach it."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from celery import Celery
from redis import exceptions

from benchmarks.chaos import server_faults, worker_faults
from benchmarks.chaos.crew import Crew, Job
from benchmarks.chaos.endpoint import Endpoint
from benchmarks.chaos.options import Options
from benchmarks.chaos.pacing import Fault
from benchmarks.chaos.place import NoTarget, Place, clear_environment, wait_for
from benchmarks.chaos.server import Server
from benchmarks.chaos.work import script

ROOT: Final = Path(__file__).parent.parent.parent
DONE_KEY: Final = "baseline:done"
QUEUE: Final = "celery"
_DOUBLES: Final = 5


@dataclass
class Baseline(Place):
    """Workers of plain Celery, their server and the endpoint."""

    slices: list[range] = field(default_factory=list)
    """Numbers of tasks that faults submit."""

    @classmethod
    def build(cls, options: Options, folder: Path) -> Baseline:
        """Nothing is started yet."""
        server = Server(options.server, folder, fsync=options.fsync)
        job = Job(_worker(options), b" ready.", server.url, server.url, in_group=True)
        crew, endpoint = Crew(folder, options.workers, job), Endpoint(folder, script())
        return cls(options, folder, server, endpoint, crew, random.Random(options.seed))

    async def start(self) -> None:
        clear_environment()
        await super().start()
        os.environ["PYTHONPATH"] = str(ROOT)
        os.environ["BASELINE_REDIS_URL"] = self.server.url
        os.environ["BASELINE_ENDPOINT"] = self.endpoint.url
        os.environ["BASELINE_LEASE_SECONDS"] = str(self.lease)

    async def finished(self) -> int | None:
        try:
            return int(await self.server.ask("SCARD", DONE_KEY))
        except exceptions.RedisError:
            return None

    async def busy(self) -> set[int]:
        """All of them, while there are messages that are taken and not acknowledged."""
        taken = int(await self.server.ask("HLEN", "unacked"))
        return {worker.pid for worker in self.crew.workers} if taken else set()

    def publish(self, numbers: range | list[int], *, prefix: str = "") -> None:
        """`.delay()`, one after the other. Raises kombu's OperationalError."""
        app = Celery(broker=self.server.url.replace("unix://", "redis+socket://", 1), set_as_current=False)
        with app.connection_for_write() as connection:
            for number in numbers:
                app.send_task("baseline.agent", (number,), task_id=f"{prefix}{number}", connection=connection)
        app.close()


async def message_doubled(place: Baseline) -> str:
    """Publish again what is running."""
    done = {int(name[1:]) for name in await place.server.ask("SMEMBERS", DONE_KEY)}
    running: list[int] = []
    for message in await place.server.ask("HVALS", "unacked"):
        numbers = [number for number in range(place.options.tasks) if f'"id": "{number}"' in message]
        running += [number for number in numbers if number not in done]
    if not running:
        raise NoTarget("no task was running")
    place.publish(running[:_DOUBLES])
    return f"{len(running[:_DOUBLES])} of running tasks"


async def message_deleted(place: Baseline) -> str:
    """Take one message off the list by hand: here it is all there is of its task."""

    async def take() -> Any:
        return await place.server.ask("LPOP", QUEUE)

    await wait_for(take, 2 * place.lease, "no message waited")
    return "1 message"


async def submit_retried(place: Baseline) -> str:
    """Submit again because the first answer did not come; half of it had been done."""
    if not place.slices:
        raise NoTarget("no tasks were left to submit")
    numbers = place.slices.pop()
    place.publish(numbers[: len(numbers) // 2], prefix="first-")
    place.publish(numbers)
    return f"{len(numbers)} tasks, half of them for the second time"


FAULTS: Final[Mapping[str, Fault[Baseline]]] = {
    "worker_killed": worker_faults.killed,
    "killed_in_claim": worker_faults.killed,
    "killed_in_seal": worker_faults.killed,
    "worker_stopped": worker_faults.stopped,
    "worker_dozed": worker_faults.dozed,
    "stopped_before_call": worker_faults.stopped,
    "short_grace": worker_faults.short_grace,
    "clocks_apart": worker_faults.clocks_apart,
    "connections_cut": server_faults.connections_cut,
    "server_restarted": server_faults.restarted,
    "server_killed": server_faults.killed,
    "server_stopped": server_faults.stopped,
    "server_mute": server_faults.mute,
    "message_doubled": message_doubled,
    "message_deleted": message_deleted,
    "submit_retried": submit_retried,
}
"""Claims, seals and the books are the queue's own; any moment stands for the worst one there."""


def _worker(options: Options) -> Any:
    def command(place: int, _url: str) -> tuple[tuple[str, ...], dict[str, str]]:
        words = (sys.executable, "-m", "celery", "-A", "benchmarks.celery_baseline.app", "worker")
        pool = ("-P", "prefork", "-c", str(options.slots), "-n", f"w{place}@here", "-l", "INFO")
        return (*words, *pool, "--without-gossip", "--without-mingle"), {}

    return command
