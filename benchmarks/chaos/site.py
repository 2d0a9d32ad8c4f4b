"""The product as the campaign installs it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis import exceptions

from benchmarks.chaos.crew import Crew, Job
from benchmarks.chaos.endpoint import PRICE, Endpoint
from benchmarks.chaos.options import Options
from benchmarks.chaos.place import Place, clear_environment
from benchmarks.chaos.server import Server
from benchmarks.chaos.tap import Tap
from benchmarks.chaos.work import BATCH, MODEL, script
from zubble_queue.contracts.need import Need
from zubble_queue.settings import Settings
from zubble_queue.stores.keys import Keys
from zubble_queue.stores.redis import RedisStore

NAMESPACE: Final = "zubble"
NEED: Final = Need("default", "bubblewrap", MODEL)
_DRAIN_SECONDS: Final = 2.0


@dataclass
class Site(Place):
    """A whole installation of the product, with a tap before its server and the operator's own way in."""

    tap: Tap = field(kw_only=True)
    keys: Keys = field(default_factory=lambda: Keys(NAMESPACE))
    slices: list[Path] = field(default_factory=list)
    """Task files that faults submit."""

    @classmethod
    def build(cls, options: Options, folder: Path) -> Site:
        """Nothing is started yet."""
        server = Server(options.server, folder, fsync=options.fsync)
        tap = Tap(folder / "tap.sock", server.socket)
        crew = Crew(folder, options.workers, Job(_worker, b" is ready, ", server.url, tap.url))
        endpoint = Endpoint(folder, script())
        return cls(options, folder, server, endpoint, crew, random.Random(options.seed), tap=tap)

    async def start(self) -> None:
        await super().start()
        await self.tap.start()
        clear_environment()
        os.environ["ZUBBLE_CONFIG"] = str(self._config())

    async def stop(self) -> None:
        await super().stop()
        await self.tap.stop()

    async def finished(self) -> int | None:
        try:
            return int(await self.server.ask("HGET", self.keys.batch(BATCH), "state:sealed") or 0)
        except exceptions.RedisError:
            return None

    async def busy(self) -> set[int]:
        holders = await self.server.ask("HGETALL", self.keys.busy)
        return {int(worker_id.rsplit("-", 2)[1]) for worker_id in holders}

    def settings(self) -> Settings:
        return Settings.load()

    async def store(self) -> RedisStore:
        """To be closed by the caller."""
        return await RedisStore.connect(self.server.url, namespace=NAMESPACE, lease_seconds=self.lease)

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

    def _config(self) -> Path:
        path = self.folder / "zubble.toml"
        path.write_text(
            f"""\
home = {json.dumps(str(self.folder / "home"))}
redis_url = {json.dumps(self.server.url)}
artifacts_url = {json.dumps(str(self.folder / "artifacts"))}
lease = {{ lease_seconds = {self.lease} }}
worker = {{ slots = {self.options.slots}, drain_seconds = {_DRAIN_SECONDS} }}

[models.{MODEL}]
base_url = {json.dumps(self.endpoint.url)}
price = {{ input = {PRICE["input"]}, output = {PRICE["output"]} }}
"""
        )
        return path


def _worker(_place: int, url: str) -> tuple[tuple[str, ...], dict[str, str]]:
    return (sys.executable, "-m", "zubble_queue.cli", "worker"), {"ZUBBLE_REDIS_URL": url}
