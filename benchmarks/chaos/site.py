"""Everything a fault can reach."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from redis import exceptions

from benchmarks.chaos import clocks
from benchmarks.chaos.crew import Attack, Crew
from benchmarks.chaos.endpoint import PRICE, Endpoint
from benchmarks.chaos.options import Options
from benchmarks.chaos.server import Server
from benchmarks.chaos.tap import Tap
from benchmarks.chaos.work import BATCH, MODEL, script
from zubble_queue.settings import Settings
from zubble_queue.stores.keys import Keys
from zubble_queue.stores.redis import RedisStore

T = TypeVar("T")
NAMESPACE: Final = "zubble"
_DRAIN_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


class NoTarget(Exception):
    """The fault found nothing to hit, within its time; one sentence."""


@dataclass
class Site:
    """A whole installation: server, tap, endpoint, workers, and the operator's own way in."""

    options: Options
    folder: Path
    server: Server
    tap: Tap
    endpoint: Endpoint
    crew: Crew
    chance: random.Random
    keys: Keys = field(default_factory=lambda: Keys(NAMESPACE))
    slices: list[Path] = field(default_factory=list)
    """Task files that faults submit."""
    impossible: dict[str, str] = field(default_factory=dict)
    """Kinds of faults that cannot be injected on this machine, and why."""

    @classmethod
    async def build(cls, options: Options, folder: Path) -> Site:
        """Start everything but the workers."""
        server = Server(options.server, folder, fsync=options.fsync)
        tap = Tap(folder / "tap.sock", server.socket)
        endpoint = Endpoint(folder, script())
        crew = Crew(folder, options.workers, (server.url, tap.url))
        site = cls(options, folder, server, tap, endpoint, crew, random.Random(options.seed))
        try:
            crew.clock_shim = clocks.build(folder)
        except clocks.Unskewable as reason:
            site.impossible["clocks_apart"] = str(reason)
        await server.start()
        await tap.start()
        await endpoint.start()
        _clear_environment(_config(options, folder, server.url, endpoint.url))
        return site

    @property
    def lease(self) -> float:
        return self.options.lease

    async def stop(self) -> None:
        await self.crew.stop()
        await self.tap.stop()
        await self.endpoint.stop()
        await self.server.stop()

    def settings(self) -> Settings:
        return Settings.load()

    async def store(self) -> RedisStore:
        """To be closed by the caller."""
        return await RedisStore.connect(self.server.url, namespace=NAMESPACE, lease_seconds=self.lease)

    def struck(self, kind: str, began: float) -> None:
        """Remember an attack on the server that has just ended."""
        self.crew.attacks.append(Attack(kind, 0, began, time.time()))

    async def sealed(self) -> int | None:
        """Sealed tasks; None when the server does not say."""
        try:
            return int(await self.server.ask("HGET", self.keys.batch(BATCH), "state:sealed") or 0)
        except exceptions.RedisError:
            return None

    async def submit(self, file: Path, *, url: str | None = None) -> asyncio.subprocess.Process:
        """`zubble batch submit` as a process."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "zubble_queue.cli", "batch", "submit", str(file), "--json"),
            *("--model", MODEL, "--batch", BATCH),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "ZUBBLE_REDIS_URL": url or self.server.url},
            start_new_session=True,
        )

    async def submitted(self, file: Path) -> dict[str, Any]:
        """What the command answered. Raises RuntimeError with what it said instead."""
        process = await self.submit(file)
        answer, said = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"batch submit left with {process.returncode}: {said.decode()[-500:]}")
        values: dict[str, Any] = json.loads(answer)
        return values


async def wait_for(ask: Callable[[], Awaitable[T]], seconds: float, what: str) -> T:
    """The first truthy answer. Raises NoTarget."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := await ask():
            return answer
        await asyncio.sleep(_POLL_SECONDS)
    raise NoTarget(f"{what} within {seconds:g} s")


def _config(options: Options, folder: Path, redis_url: str, base_url: str) -> Path:
    path = folder / "zubble.toml"
    path.write_text(
        f"""\
home = {json.dumps(str(folder / "home"))}
redis_url = {json.dumps(redis_url)}
artifacts_url = {json.dumps(str(folder / "artifacts"))}
lease = {{ lease_seconds = {options.lease} }}
worker = {{ slots = {options.slots}, drain_seconds = {_DRAIN_SECONDS} }}

[models.{MODEL}]
base_url = {json.dumps(base_url)}
price = {{ input = {PRICE["input"]}, output = {PRICE["output"]} }}
"""
    )
    return path


def _clear_environment(config: Path) -> None:
    """Nothing of the user's own installation reaches ours."""
    for name in [name for name in os.environ if name.startswith("ZUBBLE_")]:
        del os.environ[name]
    os.environ["ZUBBLE_CONFIG"] = str(config)
