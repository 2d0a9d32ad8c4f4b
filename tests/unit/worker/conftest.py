"""A loop over a real (local) sandbox, a scripted model and books in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from zubble_queue.contracts import identity
from zubble_queue.contracts.decisions import Decisions
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.model import Model
from zubble_queue.contracts.model_config import ModelConfig, PriceTable
from zubble_queue.contracts.question import Human
from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.contracts.task import LoopBudget, TaskInput
from zubble_queue.testing import MemoryBooks, MockEndpoint, Script, ScriptedModel
from zubble_sandbox.local import LocalProvider
from zubble_worker.check import SandboxChecker
from zubble_worker.loop import AgentLoop
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.stopping import Stopped
from zubble_worker.transcript import Job, Transcript

PRICED = ModelConfig(
    backend="scripted",
    script="given-in-python.json",
    price=PriceTable(input=3.0, output=15.0),
    retries=0,
    retry_base_seconds=0,
    context=32_000,
)


def envelope(
    *, budget: LoopBudget | None = None, tools: tuple[str, ...] = ("shell",), **fields: Any
) -> TaskEnvelope:
    task = TaskInput(
        task_id=identity.task_id("batch", "one", 1),
        description="Make the file done.txt.",
        allowed_tools=tools,
        success_criteria="done.txt exists.",
        verify_command="test -f done.txt",
    )
    return TaskEnvelope(
        batch="batch", source_id="one", task=task, model="scripted", budget=budget or LoopBudget(), **fields
    )


@pytest.fixture(scope="session")
def job() -> Job:
    """A task with the defaults."""
    return Job(envelope(), "")


@dataclass
class Run:
    """What a finished run left behind."""

    stopped: Stopped
    books: MemoryBooks
    transcript: Transcript
    prompts: list[str]
    """The whole text of every prompt, in order."""
    questions: list[str]
    """The same of the calls beside the stream that ask whether a reply is stuck."""
    files: list[str]


class _Listening(ScriptedModel):
    """A scripted model that remembers what it was asked."""

    def __init__(self, script: Script, config: ModelConfig) -> None:
        super().__init__(script, config=config)
        self.prompts: list[str] = []
        self.questions: list[str] = []

    async def query(self, messages: Any, options: Any, watch: Any) -> Any:
        asked = self.questions if messages[-1].content.endswith("Is it stuck?") else self.prompts
        asked.append("\n".join(message.content for message in messages))
        return await super().query(messages, options, watch)


Drive = Callable[..., Awaitable[Run]]


@pytest.fixture
async def drive() -> AsyncIterator[Drive]:
    """Run the loop over the given turns; keyword arguments go into the envelope."""
    provider = LocalProvider()
    opened = []

    async def run(
        *turns: Any,
        then: str = "last",
        decisions: Decisions | None = None,
        config: ModelConfig = PRICED,
        fresh: Sequence[Any] = (),
        rules: Sequence[Mapping[str, Any]] = (),
        opinion: Any = None,
        human: Human | None = None,
        books: MemoryBooks | None = None,
        past: Sequence[Event] = (),
        endpoint: MockEndpoint | None = None,
        **fields: Any,
    ) -> Run:
        task = envelope(**fields)
        sandbox = await provider.open(SandboxSpec(name=f"test.{len(opened)}", owner="test"))
        opened.append(sandbox)
        books = books or MemoryBooks(task.budget)
        transcript = Transcript(Job(task, ""))
        transcript.replay(past)
        usual: list[Mapping[str, Any]] = [{"turns": turns, "then": then}]
        if fresh:  # what is said once the context was cleared
            usual.insert(0, {"when": {"contains": "context was cleared"}, "turns": fresh})
        if opinion is not None:  # the answer to whoever asks whether a reply is stuck
            usual.insert(0, {"when": {"last_contains": "Is it stuck?"}, "turns": [opinion]})
        script = Script.model_validate({"rules": [*rules, *usual]})
        listening = _Listening(script, config)
        model: Model = listening
        if endpoint is not None:  # over HTTP in place of the test's own process
            endpoint.script = script
            model = OpenAIModel(config.model_copy(update={"base_url": endpoint.url, "model": "m"}))
        loop = AgentLoop(
            transcript,
            model=model,
            sandbox=sandbox,
            books=books,
            checker=SandboxChecker(provider, sandbox, task, {}),
            call_prefix="1",
            decisions=decisions,
            human=human,
        )
        try:
            stopped = await loop.run()
        finally:
            await model.aclose()
        files = [info.path for info in await sandbox.list()]
        return Run(stopped, books, transcript, listening.prompts, listening.questions, files)

    yield run
    for sandbox in opened:
        await sandbox.destroy()
