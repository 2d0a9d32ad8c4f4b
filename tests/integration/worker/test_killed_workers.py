"""Workers are killed at random moments: nothing of their sandboxes is left, and every task is sealed once."""

# What is printed is shown with a failure:
# ruff: noqa: T201

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from zubble_queue.contracts.record import TaskState
from zubble_queue.feeder import Feeder
from zubble_queue.testing import structured_reply as say
from zubble_sandbox.records import marked
from zubble_worker.app import CeleryPublisher

from .conftest import BATCH, LEASE_SECONDS, wait_until

STEPS = ("one", "two", "three")
TURNS = [
    say("plan", steps=[*STEPS, "submit"]),
    *(
        say("run", command=f"echo {name} > {name}.txt; sleep 0.3", plan_step_id=number, reasoning="next")
        for number, name in enumerate(STEPS, start=1)
    ),
    say("submit", report="all three are there"),
]
CHECK = f'test "$(cat {" ".join(f"{name}.txt" for name in STEPS)} | tr -d "\\n")" = {"".join(STEPS)}'
LIFE_SECONDS = 2.5
"""Of a worker that will be killed, at most: longer than an attempt takes from its claim to its seal."""
SLOTS = 2
AT_ONCE = 2
FULL_ROUNDS = 25
TASKS_A_KILL = 2
PLAIN_USER = 61_236
SEED = int(os.environ.get("ZUBBLE_KILL_SEED", secrets.randbits(32)))
"""Printed with every failure; the same one draws the same moments."""
EGRESS = Path("/run/zubble-egress")
ROOT = Path(__file__).parents[3]


Records = dict[str, list[str]]
"""The tokens of sandboxes, with their control groups."""


@dataclass
class Ground:
    """Where the workers of one test run, and what the host shows of them."""

    zubble: object
    temporary: Path
    """Their TMPDIR."""
    user: int
    python: str
    environment: dict[str, str]
    met: Counter[str] = field(default_factory=Counter)
    """The last event of each attempt whose worker was killed."""
    dead: dict[int, Records] = field(default_factory=dict)
    """The workers of the round before, with the sandboxes they had open."""

    @property
    def runtime(self) -> Path:
        return Path("/run/zubble") if self.user == 0 else self.temporary / f"zubble-{self.user}"

    def start(self, slots: int) -> subprocess.Popen[bytes]:
        options = {} if self.user == os.geteuid() else {"user": self.user, "python": self.python}
        if options:
            give(self.temporary.parent, self.user)
        return self.zubble.start_worker(
            slots=slots, **options, TMPDIR=str(self.temporary), **self.environment
        )

    def records_of(self, pid: int) -> Records:
        found = {}
        for file in self.runtime.glob("zubble-*.json"):
            with contextlib.suppress(FileNotFoundError):  # one of somebody else, which has ended
                record = json.loads(file.read_bytes())
                found |= {record["token"]: record["groups"]} if record["worker_pid"] == pid else {}
        return found

    def left_of(self, pid: int, boxes: Records) -> dict[str, object]:
        """What there still is of a dead worker and of the sandboxes it had open."""
        folders = [*self.runtime.glob("*"), *(self.runtime / "egress").glob("*"), *EGRESS.glob("*")]
        left = {
            "processes": [pid for token in boxes for pid in marked(token)],
            "records": self.records_of(pid),
            "files": [path.name for path in folders if path.name.partition(".")[0] in boxes],
            "groups": [group for groups in boxes.values() for group in groups if Path(group).exists()],
            "locks": [line for line in lines_of("/proc/locks") if line.split()[-4] == str(pid)],
            "mounts": [line for line in lines_of("/proc/mounts") if any(token in line for token in boxes)],
        }
        return {what: found for what, found in left.items() if found}


def give(folder: Path, user: int) -> None:
    """Make it and everything below it another user's."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, user, user, follow_symlinks=False)


def lines_of(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def runnable_python(user: int, folder: Path) -> tuple[str, dict[str, str]]:
    """A Python that another user may run, if need be a copy, and what finds the same packages with it."""
    command = [sys.executable, "-c", "import zubble_worker"]
    with contextlib.suppress(OSError):
        if not subprocess.run(command, user=user, group=user, extra_groups=(), check=False).returncode:
            return sys.executable, {}
    library = f"lib/python3.{sys.version_info.minor}"
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*")
    shutil.copytree(Path(sys.base_prefix, library), folder / library, ignore=left_out, symlinks=True)
    (folder / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), python := folder / "bin" / "python3")
    for shared in Path(sys.base_prefix, "lib").glob("libpython*"):
        shutil.copy(shared, folder / "lib")
    packages = [path for path in sys.path if path.endswith("-packages")]
    found_in = (*packages, ROOT, ROOT / "worker", ROOT / "sandbox")
    return str(python), {
        "PYTHONPATH": os.pathsep.join(map(str, found_in)),
        "LD_LIBRARY_PATH": str(folder / "lib"),
    }


@pytest.fixture
def tmp_path():
    """Where every user may pass: pytest closes its own folders to others again and again."""
    with tempfile.TemporaryDirectory(prefix="zubble-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(params=["as it is", pytest.param("a plain user", marks=pytest.mark.slow)])
async def ground(request, install, tmp_path):
    """An installation whose workers are run by this user, or by one without any rights."""
    user, python, environment = os.geteuid(), sys.executable, {}
    if request.param == "a plain user":
        if user != 0:
            pytest.skip("this user is a plain one already")
        python, environment = runnable_python(user := PLAIN_USER, tmp_path / "python")
    zubble = await install({"": TURNS}, after_restart=TURNS, contains="This is task")
    zubble.config["max_attempts"] = 10
    (temporary := tmp_path / "temporary").mkdir()
    return Ground(zubble, temporary, user, python, environment)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("rounds", [1, pytest.param(FULL_ROUNDS, marks=pytest.mark.slow)])
async def test_workers_killed_at_random_moments_leave_nothing_and_lose_no_task(ground, rounds):
    print(f"seed {SEED}")
    zubble, draw = ground.zubble, random.Random(SEED)
    names = [f"task-{number}" for number in range(TASKS_A_KILL * AT_ONCE * rounds)]
    await zubble.submit(*(zubble.task(name, verify_command=CHECK) for name in names))
    over = asyncio.Event()
    if rounds == 1:
        ground.environment["ZUBBLE_WORKER__FEEDER"] = "false"
    feeder = asyncio.create_task(feed(ground, over) if rounds == 1 else over.wait())
    for _ in range(rounds):
        workers = [ground.start(SLOTS) for _ in range(AT_ONCE)]
        moments = [draw.uniform(0, LIFE_SECONDS) for _ in workers]
        killed = await asyncio.gather(*map(killed_at, [ground] * AT_ONCE, workers, moments))
        ground.dead = {worker.pid: boxes for worker, boxes in zip(workers, killed, strict=True)}
    last = ground.start(4)
    await registered(ground, last)
    views = [await zubble.sealed(name, 120) for name in names]
    batch = await zubble.store.batch(BATCH)
    over.set()
    await feeder
    last.terminate()
    assert await asyncio.to_thread(last.wait) == 0

    print(f"attempts whose worker was killed, by their last event: {dict(ground.met)}")
    if rounds > 1:  # one round may meet workers that have not begun, or are done
        assert len(ground.met) > 3, "control: they were in different parts of an attempt"
        assert max(view.attempt for view in views) > 1, "control: and were taken up again"
    assert {view.outcome for view in views} == {"verified"}
    assert dict(batch.outcomes) == {"verified": len(names)}
    assert [path for path in ground.temporary.iterdir() if path != ground.runtime] == []


async def feed(ground: Ground, over: asyncio.Event) -> None:
    """In place of the workers, which would have to wait until the lead of a dead one has run out."""
    publisher = CeleryPublisher(ground.zubble.settings())
    await Feeder(ground.zubble.store, publisher, holder="test", lease_seconds=LEASE_SECONDS).run(over)
    await publisher.aclose()


async def killed_at(ground: Ground, worker: subprocess.Popen[bytes], seconds: float) -> Records:
    """Kill a worker so long after it could claim; the sandboxes it had open."""
    worker_id = await registered(ground, worker)
    await asyncio.sleep(seconds)
    worker.kill()
    await asyncio.to_thread(worker.wait)
    store = ground.zubble.store
    async for view in store.tasks(BATCH, state=TaskState.RUNNING):
        if view.worker == worker_id:
            events = await store.events(view.task_id)
            ground.met[events[-1].type if events else "claim"] += 1
    return ground.records_of(worker.pid)


async def registered(ground: Ground, worker: subprocess.Popen[bytes]) -> str:
    async def worker_id() -> str | None:
        assert worker.poll() is None, ground.zubble.log()
        found = [info.worker_id for info in await ground.zubble.store.workers() if info.pid == worker.pid]
        return found[0] if found else None

    found = await wait_until(worker_id, "the worker has registered", evidence=ground.zubble.log)
    left = {pid: ground.left_of(pid, boxes) for pid, boxes in ground.dead.items()}
    assert not any(left.values()), f"{left} after seed {SEED}"
    return found
