"""An agent that works in this process: the loop of the worker over books in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from zubble.asking import Asked, instructions, spec_of
from zubble.checks import ReportChecker
from zubble.environments import Environment
from zubble.journal import Journal
from zubble.models import level_of
from zubble.protocols import RepairProtocol
from zubble.result import Result, perf
from zubble_queue.contracts.decisions import Decisions, StepView
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.envelope import ATTACHED, TaskEnvelope
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.model import CallOptions, Message, Model
from zubble_queue.contracts.sandbox import Sandbox, shell
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.memory_books import MemoryBooks
from zubble_worker.check import SandboxChecker
from zubble_worker.loop import AgentLoop
from zubble_worker.sizes import snapshot_bytes
from zubble_worker.stopping import Stopped
from zubble_worker.transcript import Job, Transcript

MAX_TOKENS: Final = 500_000
"""Of a whole run, where no budget is given: what bounds it is its time."""
MAX_ITERATIONS: Final = 100
_GRACE_SECONDS: Final = 30.0
"""The loop keeps its own deadline; this ends one that hangs all the same."""


class Agent:
    """Works at one task at a time.

    Args:
        model: Whom to ask, as from `zubble.models.openai_model`.
        env: Where commands run, as from `zubble.environments`.
        protocol: The kind of work; repairing where it is left out.
        journal: Keeps what was tried, and tells it to a later run of the same task.
        level_kwargs: How to think, see `zubble.models.level_of`.
        verify: A command that exits with 0 when the task is done. Without one, a claim of done is accepted
            when there is a report, and nothing is called verified.
        budget: Iterations, tokens and money; its time is that of `run_task`.
        stop: Stop sequences for replies that are text. In the JSON of structured replies they would cut
            strings, so they are not sent there.
        temperature: 0 to 2.

    Raises:
        BadInput: One sentence per argument that cannot be used.
    """

    def __init__(
        self,
        model: Model,
        env: Environment,
        protocol: RepairProtocol | None = None,
        journal: Journal | None = None,
        level_kwargs: Mapping[str, Any] | None = None,
        *,
        verify: str | None = None,
        budget: LoopBudget | None = None,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
    ) -> None:
        self._model, self._env, self._journal = model, env, journal
        self._stop = tuple(stop)
        self._asked = Asked(
            model=model.name,
            request=env.request,
            protocol=protocol or RepairProtocol(),
            level=level_of(level_kwargs),
            temperature=temperature,
            verify=verify,
            budget=budget or LoopBudget(max_iterations=MAX_ITERATIONS, max_tokens=MAX_TOKENS),
        )

    def run_task(
        self, messages: Sequence[Mapping[str, str]], timeout: float, maxtok: int | None = None
    ) -> Result:
        """Work at what the messages ask for; blocks, and must not be called inside an event loop.

        Args:
            messages: With `role` and `content`, as for a chat completion.
            timeout: Seconds of the whole run, at most 3,600.
            maxtok: The most completion tokens of one call; that of the thinking level where it is left out.

        Raises:
            BadInput: One sentence per argument that cannot be used.
            InfraError: Model or sandbox could not be had; every other end is a Result.
            JobError: The container is not there.
        """
        return asyncio.run(self._and_hang_up(messages, timeout, maxtok))

    async def arun_task(
        self,
        messages: Sequence[Mapping[str, str]],
        timeout: float,  # noqa: ASYNC109 - as in run_task
        maxtok: int | None = None,
    ) -> Result:
        """The same inside an event loop."""
        envelope, wanted = self._asked.task(timeout), instructions(messages)
        if self._journal is not None:
            self._journal.begin(wanted)
        started = time.monotonic()
        sandbox = await self._env.provider.open(spec_of(envelope))
        try:
            if self._env.work_tree is not None:
                await sandbox.restore(self._env.work_tree)
            return await self._work(envelope, wanted, sandbox, maxtok, started)
        finally:
            await sandbox.destroy()

    async def _and_hang_up(
        self, messages: Sequence[Mapping[str, str]], seconds: float, maxtok: int | None
    ) -> Result:
        """Connections belong to the event loop that made them."""
        try:
            return await self.arun_task(messages, seconds, maxtok)
        finally:
            await self._model.aclose()

    async def _work(
        self,
        envelope: TaskEnvelope,
        wanted: str,
        sandbox: Sandbox,
        maxtok: int | None,
        started: float,
    ) -> Result:
        transcript, books = Transcript(Job(envelope, wanted)), _Books(envelope.budget, self._journal)
        if self._journal is not None:
            transcript.memory = self._journal.summary()
        checker = (
            ReportChecker(sandbox, self._asked.protocol.report_there)
            if self._asked.verify is None
            else SandboxChecker(self._env.provider, sandbox, envelope, {})
        )
        stops = self._stop if transcript.job.protocol.schema is None else ()
        loop = AgentLoop(
            transcript,
            model=self._model,
            sandbox=sandbox,
            books=books,
            checker=checker,
            call_prefix="1",
            decisions=_Asked(maxtok, stops),
        )
        stopped = await _in_time(loop, books)
        verified = None if self._asked.verify is None else (await checker.check()).passed
        return Result(
            text=await self._report(sandbox) or stopped.report or stopped.reason,
            perf=perf(stopped, books, transcript, verified=verified, seconds=time.monotonic() - started),
            stop=stopped.stop,
            verified=verified,
            work_tree=await self._tree(sandbox),
            events=tuple(books.events),
        )

    async def _report(self, sandbox: Sandbox) -> str:
        shown = await sandbox.exec(shell(self._asked.protocol.show_report))
        return shown.stdout.decode("utf-8", "replace").strip() if shown.ok else ""

    async def _tree(self, sandbox: Sandbox) -> bytes | None:
        if self._env.request.backend == ATTACHED:
            return None
        await sandbox.freeze()
        try:
            return await sandbox.snapshot(max_bytes=snapshot_bytes(sandbox.spec))
        except ValueError:
            return None


def run_task(
    messages: Sequence[Mapping[str, str]], timeout: float, maxtok: int | None = None, *, agent: Agent
) -> Result:
    """`agent.run_task`, for those who pass functions around."""
    return agent.run_task(messages, timeout, maxtok)


class _Books(MemoryBooks):
    """Books in memory whose journal is also on the disk, where there is one."""

    def __init__(self, budget: LoopBudget, journal: Journal | None) -> None:
        super().__init__(budget)
        self._journal = journal

    async def journal(self, entry: JournalEntry) -> None:
        await super().journal(entry)
        if self._journal is not None:
            self._journal.add(entry)


class _Asked(Decisions):
    """What the caller says about each call."""

    def __init__(self, maxtok: int | None, stop: tuple[str, ...]) -> None:
        self._maxtok, self._stop = maxtok, stop

    def assemble(
        self,
        view: StepView,  # noqa: ARG002
        messages: Sequence[Message],
        options: CallOptions,
    ) -> tuple[Sequence[Message], CallOptions]:
        most = options.max_tokens if self._maxtok is None else min(options.max_tokens, self._maxtok)
        stop = tuple(dict.fromkeys((*options.stop, *self._stop)))
        return messages, replace(options, max_tokens=most, stop=stop)


async def _in_time(loop: AgentLoop, books: MemoryBooks) -> Stopped:
    try:
        async with asyncio.timeout(books.left().seconds + _GRACE_SECONDS):
            return await loop.run()
    except TimeoutError:
        return Stopped(Stop.LIMIT_WALLCLOCK, "the step did not end at its deadline")
