"""The workers: started as an orchestrator would, replaced when they end; and what was done to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos import clocks

_READY_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Attack:
    """What was done to a process, and when; `pid` 0 is the server."""

    kind: str
    pid: int
    began: float
    ended: float
    fatal: bool = False

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def touches(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


@dataclass(frozen=True, slots=True)
class Job:
    """How a worker is started."""

    command: Callable[[int, str], tuple[tuple[str, ...], dict[str, str]]]
    """From its place and the server's URL: what to run, and what to add to the environment."""
    ready: bytes
    """In its log once it works."""
    url: str
    tapped_url: str
    """Of two in three; the same URL where there is no tap."""
    in_group: bool = False
    """Signals go to its children as well, as when a container is killed; otherwise they have to notice."""


@dataclass(eq=False)
class Worker:
    """One place in the crew, and the process that fills it now."""

    place: int
    tapped: bool
    process: asyncio.subprocess.Process
    log: Path
    job: Job
    skew_seconds: int = 0
    held: bool = False
    """Being attacked at the moment: no good for another attack."""
    sentenced: bool = False
    """Somebody told it to end, or ended it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP or SIGCONT."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if self.job.in_group else os.kill)(self.pid, number)

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def ready(self) -> bool:
        return self.job.ready in self.log.read_bytes()


@dataclass
class Crew:
    """Worker processes; two in three reach the server through the tap.

    Args:
        folder: For their logs.
        size: How many there are at a time.
        job: What they run.
        clock_shim: The library for wrong clocks, where there is one.
    """

    folder: Path
    size: int
    job: Job
    clock_shim: Path | None = None
    workers: list[Worker] = field(default_factory=list)
    attacks: list[Attack] = field(default_factory=list)
    uninvited: Counter[int] = field(default_factory=Counter)
    """Exit codes of workers that ended although nobody had touched them."""
    _started: int = 0
    _watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fill every place, and wait until all are ready. Raises RuntimeError."""
        self.workers = [await self._hire(place) for place in range(self.size)]
        await self.ready()
        self._watch = asyncio.create_task(self._replace_the_dead())

    async def ready(self) -> None:
        """Wait until every worker has said that it is. Raises RuntimeError."""
        deadline = time.monotonic() + _READY_SECONDS
        while not all(worker.ready for worker in self.workers):
            if time.monotonic() > deadline or not all(worker.alive for worker in self.workers):
                raise RuntimeError(f"workers do not start: {self._last_words()}")
            await asyncio.sleep(_POLL_SECONDS)

    def standing(self, *, tapped: bool | None = None) -> list[Worker]:
        """Workers that can be attacked."""
        return [
            worker
            for worker in self.workers
            if worker.alive and worker.ready and not worker.held and tapped in {None, worker.tapped}
        ]

    def kill(self, worker: Worker, kind: str) -> None:
        """SIGKILL; its place is filled again at once."""
        now = time.time()
        self.attacks.append(Attack(kind, worker.pid, now, now, fatal=True))
        worker.held = worker.sentenced = True
        worker.send(signal.SIGKILL)

    def knows(self, pid: int) -> bool:
        """Whether such a worker fills a place: what one has sent may arrive after its end."""
        return any(worker.pid == pid for worker in self.workers)

    def by_pid(self, pid: int) -> Worker:
        return next(worker for worker in self.workers if worker.pid == pid)

    async def exchange(self, worker: Worker, kind: str, *, skew_seconds: int, grace_seconds: float) -> None:
        """SIGTERM, SIGKILL after the grace, and a new one in its place whose clock is wrong by so much."""
        worker.skew_seconds = skew_seconds
        await self.end(worker, kind, grace_seconds)

    async def end(self, worker: Worker, kind: str, grace_seconds: float) -> None:
        """As a pod is deleted: SIGTERM, and SIGKILL when the grace is over."""
        began = time.time()
        worker.held = worker.sentenced = True
        worker.process.terminate()
        try:
            await asyncio.wait_for(worker.process.wait(), grace_seconds)
            self.attacks.append(Attack(kind, worker.pid, began, time.time()))
        except TimeoutError:
            self.attacks.append(Attack(kind, worker.pid, began, time.time(), fatal=True))
            worker.send(signal.SIGKILL)

    async def stop(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for worker in self.workers:
            if worker.alive:
                worker.send(signal.SIGKILL)
                await worker.process.wait()

    async def _replace_the_dead(self) -> None:
        while True:
            for place, worker in enumerate(self.workers):
                if worker.process.returncode is not None:
                    if not worker.sentenced:
                        self.uninvited[worker.process.returncode] += 1
                    self.workers[place] = await self._hire(place, skew_seconds=worker.skew_seconds)
            await asyncio.sleep(_POLL_SECONDS)

    async def _hire(self, place: int, *, skew_seconds: int = 0) -> Worker:
        self._started += 1
        path = self.folder / f"worker-{place}-{self._started}.log"
        tapped = place % 3 != 0
        command, added = self.job.command(place, self.job.tapped_url if tapped else self.job.url)
        if self.clock_shim is not None:
            added |= clocks.environment(self.clock_shim, skew_seconds)
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **added},
                start_new_session=True,
            )
        return Worker(place, tapped, process, path, self.job, skew_seconds)

    def _last_words(self) -> str:
        return "; ".join(worker.log.read_text(errors="replace")[-300:] for worker in self.workers)
