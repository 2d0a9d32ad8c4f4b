"""The workers: started as an orchestrator would, replaced when they end; and what was done to them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos import clocks

_READY: Final = b" is ready, "
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

    def touches(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


@dataclass(eq=False)
class Worker:
    """One place in the crew, and the process that fills it now."""

    place: int
    tapped: bool
    process: asyncio.subprocess.Process
    log: Path
    skew_seconds: int = 0
    held: bool = False
    """Being attacked at the moment: no good for another attack."""
    sentenced: bool = False
    """Somebody told it to end, or ended it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    @property
    def ready(self) -> bool:
        return _READY in self.log.read_bytes()


@dataclass
class Crew:
    """Worker processes; every second one reaches the server through the tap.

    Args:
        folder: For their logs.
        size: How many there are at a time.
        urls: Of the server: directly, and through the tap.
        clock_shim: The library for wrong clocks, where there is one.
    """

    folder: Path
    size: int
    urls: tuple[str, str]
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
            if time.monotonic() > deadline:
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
        worker.sentenced = True
        worker.process.kill()

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
        worker.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(worker.process.wait(), grace_seconds)
            self.attacks.append(Attack(kind, worker.pid, began, time.time()))
        except TimeoutError:
            self.attacks.append(Attack(kind, worker.pid, began, time.time(), fatal=True))
            worker.process.kill()

    async def stop(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for worker in self.workers:
            if worker.alive:
                worker.process.kill()
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
        tapped = place % 2 == 1
        environment = {**os.environ, "ZUBBLE_REDIS_URL": self.urls[tapped]}
        if self.clock_shim is not None:
            environment |= clocks.environment(self.clock_shim, skew_seconds)
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "zubble_queue.cli", "worker"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )
        return Worker(place, tapped, process, path, skew_seconds)

    def _last_words(self) -> str:
        return "; ".join(worker.log.read_text(errors="replace")[-300:] for worker in self.workers)
