"""All models, each playing the same script: over real HTTP, by a program, and in the test's own process."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.testing import RecordingWatcher
from zubble_worker.models.cli import CliModel
from zubble_worker.models.litellm import LitellmModel
from zubble_worker.models.mock_endpoint import MockEndpoint
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.models.performance import count_prompt_tokens, perform
from zubble_worker.models.script import Prompt, Script
from zubble_worker.models.scripted import ScriptedModel

QUICK = {
    "model": "m",
    "price": {"input": 3, "output": 15, "cached": 1},
    "retries": 2,
    "retry_base_seconds": 0,
    "idle_timeout_seconds": 0.3,
}
PROMPT = (Message("system", "be brief"), Message("user", "say something"))


DOUBLE = Path(__file__).with_name("cli_double.py")
NOT_OF_PROGRAMS = ("stop_sequence", "tool", "utf8", "ten_megabytes", "inside_completion")
"""Parts of the names of tests about what a program is not asked for, and does not say."""
NOT_OF_LITELLM = ("utf8", "first_piece", "ten_tokens_ends")
"""The same for what LiteLLM does in its own way: it gives such an answer up, and names causes otherwise."""


def _turn(reply):
    played = perform(reply, max_tokens=None, stop=())
    prompt = count_prompt_tokens(Prompt("m", tuple((m.role, m.content) for m in PROMPT)))
    usage = {"prompt": prompt, "completion": played.tokens, "cached": reply.cached_tokens}
    return {
        "pieces": [[piece.channel, piece.text] for piece in played.pieces],
        "usage": usage if reply.usage else None,
        "delay": reply.delay_seconds,
        "pace": reply.token_seconds,
        "fault": reply.fault and reply.fault.kind,
        "after": reply.fault.after_tokens if reply.fault else 0,
        "finish": played.finish,
    }


@dataclass
class Bench:
    """One model on one script, a watcher, and a way to ask."""

    kind: str
    stack: AsyncExitStack
    watcher: RecordingWatcher = field(default_factory=RecordingWatcher)
    endpoint: MockEndpoint | None = None
    model: CliModel | LitellmModel | OpenAIModel | ScriptedModel | None = None

    async def play(self, *turns, **config):
        script = Script.always(*turns)
        if self.kind == "scripted":
            table = QUICK | {"backend": "scripted", "script": "-"} | config
            self.model = ScriptedModel(script, config=ModelConfig.model_validate(table))
            return
        if self.kind == "cli":
            self.model = self._program(script, config)
            return
        if self.kind == "litellm" and find_spec("litellm") is None:
            pytest.skip("litellm is not installed")
        self.endpoint = await self.stack.enter_async_context(MockEndpoint(script))
        table = QUICK | {"base_url": self.endpoint.url} | config
        if self.kind == "litellm":
            named = {"backend": "litellm", "model": "openai/m", "idle_timeout_seconds": 3} | config
            self.model = LitellmModel(ModelConfig.model_validate(table | named), name="m")
            return
        self.model = OpenAIModel(ModelConfig.model_validate(table))
        self.stack.push_async_callback(self.model.aclose)

    def _program(self, script, config):
        """Every turn of the script as the double plays it."""
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "turns.json").write_text(json.dumps([_turn(reply) for reply in script.rules[0].turns]))
        command = [sys.executable, "-S", "-E", str(DOUBLE), "claude", str(folder / "turns.json")]
        cli = {"command": command, "output": "claude"}
        quick = QUICK | {"backend": "cli", "cli": cli, "idle_timeout_seconds": 10} | config
        return CliModel.from_config("m", ModelConfig.model_validate(quick))

    async def ask(self, messages=PROMPT, **options):
        options = {"max_tokens": 10_000, "deadline_seconds": 30.0} | options
        return await self.model.query(messages, CallOptions(**options), self.watcher)


def pytest_generate_tests(metafunc):
    """Answers come from all models; how an endpoint fails is nothing that a program does."""
    if "bench" not in metafunc.fixturenames:
        return
    name, module = metafunc.function.__name__, metafunc.module.__name__
    kinds = ["openai", "scripted"]
    if module.endswith("test_answers") and not any(part in name for part in NOT_OF_PROGRAMS):
        kinds.append("cli")
    if not any(part in name for part in NOT_OF_LITELLM):
        # It takes seconds to import, and warns of what it does itself.
        marks = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
        kinds.append(pytest.param("litellm", marks=marks))
    metafunc.parametrize("bench", kinds, indirect=True)


@pytest.fixture
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
