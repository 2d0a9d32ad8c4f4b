"""Both models, each playing the same script: over real HTTP, and without it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.testing import RecordingWatcher
from zubble_worker.models.mock_endpoint import MockEndpoint
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.models.script import Script
from zubble_worker.models.scripted import ScriptedModel

QUICK = {
    "model": "m",
    "price": {"input": 3, "output": 15, "cached": 1},
    "retries": 2,
    "retry_base_seconds": 0,
    "idle_timeout_seconds": 0.3,
}
PROMPT = (Message("system", "be brief"), Message("user", "say something"))


@dataclass
class Bench:
    """One model on one script, a watcher, and a way to ask."""

    kind: str
    stack: AsyncExitStack
    watcher: RecordingWatcher = field(default_factory=RecordingWatcher)
    endpoint: MockEndpoint | None = None
    model: OpenAIModel | ScriptedModel | None = None

    async def play(self, *turns, **config):
        script = Script.always(*turns)
        if self.kind == "scripted":
            table = QUICK | {"backend": "scripted", "script": "-"} | config
            self.model = ScriptedModel(script, config=ModelConfig.model_validate(table))
            return
        self.endpoint = await self.stack.enter_async_context(MockEndpoint(script))
        table = QUICK | {"base_url": self.endpoint.url} | config
        self.model = OpenAIModel(ModelConfig.model_validate(table))
        self.stack.push_async_callback(self.model.aclose)

    async def ask(self, messages=PROMPT, **options):
        options = {"max_tokens": 10_000, "deadline_seconds": 30.0} | options
        return await self.model.query(messages, CallOptions(**options), self.watcher)


@pytest.fixture(params=["openai", "scripted"])
async def bench(request):
    async with AsyncExitStack() as stack:
        yield Bench(request.param, stack)


@pytest.fixture
def wait_until():
    async def wait(predicate, what, *, seconds=20.0):
        end = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > end:
                pytest.fail(f"not within {seconds} s: {what}")
            await asyncio.sleep(0.005)

    return wait
