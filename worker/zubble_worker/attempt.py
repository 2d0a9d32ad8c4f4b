"""One attempt: open the sandbox, drive the loop, verify, seal; whatever happens, one of these ends follows.

sealed      the ending is written                        released  given back to the queue, by cause
dropped     the lease was lost; nothing more is written
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import UNVERIFIED_STOPS, Ending, Stop, Verdict
from zubble_queue.contracts.envelope import BlobRef, FileEntry
from zubble_queue.contracts.model import Model, estimate_tokens
from zubble_queue.contracts.record import Claim
from zubble_queue.contracts.sandbox import MIB, Sandbox, SandboxProvider, SandboxSpec
from zubble_queue.errors import InfraError, JobError, LeaseLost, ModelUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_queue.stores.redis import RedisStore
from zubble_worker import journal, worktree
from zubble_worker.books import AttemptBooks, kept_branch, snapshot_bytes
from zubble_worker.check import SandboxChecker
from zubble_worker.lease import Interruption, LeaseKeeper
from zubble_worker.loop import AgentLoop
from zubble_worker.observers.doom_loop import DoomLoop
from zubble_worker.stopping import Stopped
from zubble_worker.transcript import Job, Transcript

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_WALLCLOCK_GRACE_SECONDS: Final = 30.0
"""The loop keeps its own deadline; this ends one that hangs all the same."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt works with; the same for all attempts of a worker."""

    worker_id: str
    store: RedisStore
    artifacts: ArtifactStore
    models: Mapping[str, Model]
    providers: Mapping[str, SandboxProvider]
    """Only those the worker's settings allow."""
    lease: LeaseSettings


@dataclass(frozen=True, slots=True)
class Done:
    """How an attempt was left."""

    how: str
    """sealed, released or dropped."""
    ending: Ending | None = None
    cause: str = ""


class Attempt:
    """Carries a claim to its end."""

    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._claim, self._tools = claim, tools
        self._envelope = claim.envelope
        self._books = AttemptBooks(claim, tools.store, tools.artifacts)
        self._transcript = Transcript(Job(claim.envelope, ""))
        self._sandbox: Sandbox | None = None
        self._checker: SandboxChecker | None = None
        self._before: dict[str, bytes] = {}
        self._open_seconds = 0.0
        self._handover = asyncio.Event()

    def hand_over(self) -> None:
        """Ask the attempt to checkpoint and give its task back."""
        self._handover.set()

    async def run(self) -> Done:
        """Until the task is sealed, given back, or no longer ours."""
        try:
            return await self._to_an_end()
        except LeaseLost:
            return Done("dropped", cause="lease lost")
        except JobError as error:
            return await self._seal(Stopped(Stop.INVALID, str(error)))
        except InfraError as error:
            if isinstance(error, ModelUnavailable) and error.permanent:
                return await self._seal(Stopped(Stop.INFRA, str(error)))
            return await self._release(str(error))
        finally:
            if self._sandbox:
                await self._sandbox.destroy()

    async def _to_an_end(self) -> Done:
        stopped = await self._uninterrupted(self._work())
        if isinstance(stopped, Interruption):
            return await self._interrupted(stopped)
        if stopped.stop in UNVERIFIED_STOPS or self._checker is None:
            return await self._seal(stopped)
        result = await self._uninterrupted(self._verified(self._checker))
        if isinstance(result, Interruption):
            return await self._interrupted(result)
        return await self._seal(stopped, result)

    async def _interrupted(self, interruption: Interruption) -> Done:
        match interruption:
            case Interruption.CANCELLED:
                return await self._seal(Stopped(Stop.CANCELLED, "cancelled by the operator"))
            case Interruption.HANDOVER:
                return await self._give_back()
            case Interruption.LOST:
                return Done("dropped", cause="lease lost")

    async def _uninterrupted(self, work: Coroutine[Any, Any, T]) -> T | Interruption:
        """The work's result, or what interrupted it; then the work has been cancelled and has ended."""
        working = asyncio.create_task(work)
        renewing = LeaseKeeper(self._tools.store, self._claim.lease, self._tools.lease)
        keeper = asyncio.create_task(renewing.watch())
        leaving = asyncio.create_task(self._handover.wait())
        try:
            await asyncio.wait({working, keeper, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            return keeper.result() if keeper.done() else Interruption.HANDOVER
        finally:
            for task in (working, keeper, leaving):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, LeaseLost, InfraError):
                await working

    # -- before the loop ------------------------------------------------------------------------------

    async def _work(self) -> Stopped:
        await self._books.record(
            "claimed", worker=self._tools.worker_id, previous_end=self._claim.previous_end
        )
        model = self._tools.models.get(self._envelope.model)
        if model is None:
            raise JobError(f"model {self._envelope.model!r} is not defined on this worker")
        provider = self._provider()
        job = Job(self._envelope, await self._instructions())
        self._transcript = Transcript(job)
        if estimate_tokens(job.opening()[-1].content) > self._envelope.task.context_budget_tokens:
            budget = self._envelope.task.context_budget_tokens
            return Stopped(Stop.LIMIT_CONTEXT, f"context_budget_tokens={budget} exceeded by the instructions")
        sandbox = await self._open(provider)
        hidden = await self._files(self._envelope.verify.files)
        self._checker = SandboxChecker(provider, sandbox, self._envelope, hidden)
        await self._preflight()
        await self._take_up(sandbox)
        await self._books.baseline(sandbox)
        loop = AgentLoop(
            self._transcript,
            model=model,
            sandbox=sandbox,
            books=self._books,
            checker=self._checker,
            doom_loop=self._doom_loop(),
            call_prefix=str(self._claim.lease.epoch),
        )
        try:
            async with asyncio.timeout(self._books.left().seconds + _WALLCLOCK_GRACE_SECONDS):
                return await loop.run()
        except TimeoutError:
            return Stopped(Stop.LIMIT_WALLCLOCK, "the step did not end at its deadline")

    def _provider(self) -> SandboxProvider:
        """The sandbox that was asked for, where the worker's settings allow it (invariant 3)."""
        asked = self._envelope.sandbox
        if asked.backend not in self._tools.providers:
            allowed = ", ".join(sorted(self._tools.providers)) or "none"
            raise JobError(f"sandbox {asked.backend!r} is not allowed on this worker (allowed: {allowed})")
        if asked.network != "none":
            raise JobError(f"sandbox.network {asked.network!r} is not allowed on this worker (allowed: none)")
        return self._tools.providers[asked.backend]

    async def _instructions(self) -> str:
        instructions = self._envelope.instructions
        if isinstance(instructions, BlobRef):
            return (await self._tools.artifacts.aget(instructions)).decode("utf-8", "replace")
        return instructions

    async def _files(self, entries: tuple[FileEntry, ...]) -> dict[str, bytes]:
        return {entry.path: await self._tools.artifacts.aget(entry.blob) for entry in entries}

    async def _open(self, provider: SandboxProvider) -> Sandbox:
        started = time.monotonic()
        asked, lease = self._envelope.sandbox, self._claim.lease
        spec = SandboxSpec(
            name=f"{lease.task_id}.{lease.epoch}",
            owner=self._tools.worker_id,
            memory_bytes=asked.memory_mb * MIB,
            work_bytes=asked.work_mb * MIB,
            pids=asked.pids,
            network=asked.network,
            max_life_seconds=self._envelope.budget.max_wallclock_seconds + 3_600.0,
        )
        self._sandbox = sandbox = await provider.open(spec)
        for entry in self._envelope.files:
            data = await self._tools.artifacts.aget(entry.blob)
            await sandbox.write(entry.path, data, executable=entry.blob.executable)
        self._before = worktree.files_in(await sandbox.snapshot())
        self._open_seconds = time.monotonic() - started
        await self._books.record("sandbox_opened", backend=provider.name, seconds=self._open_seconds)
        return sandbox

    async def _preflight(self) -> None:
        """Once per content: the check must be runnable, and must fail on the untouched tree (F9)."""
        content = self._envelope.content_hash()
        if self._envelope.preflight == "off" or await self._tools.store.preflighted(content):
            return
        assert self._checker is not None
        result = await self._checker.check()
        await self._record("preflight_finished", **result.as_dict())
        if result.verdict is Verdict.PASSED:
            raise JobError("verify_command passes before anything was done, so it proves nothing")
        if result.verdict is Verdict.ERROR:
            raise JobError(f"verify_command cannot be run in the sandbox (exit code {result.exit_code})")
        await self._tools.store.set_preflighted(content)

    async def _take_up(self, sandbox: Sandbox) -> None:
        """Go on where an earlier attempt was checkpointed, or say that there was one."""
        if self._claim.previous_end == "none":
            return
        point = self._claim.checkpoint
        if point and point.snapshot:
            await sandbox.restore(await self._tools.artifacts.aget(point.snapshot))
            self._transcript.replay(kept_branch(await self._books.past_events()))
            at, past = point.seq, ""
        else:
            at, past = 0, journal.render(await self._tools.store.journal(self._envelope.task_id))
        text = (
            f"[harness] The environment was restarted at step {self._transcript.step}. Background processes "
            f"and files outside the work tree are gone.{' ' if past else ''}{past}"
        )
        await self._record("restarted", resumed_from=at, step=self._transcript.step, text=text)

    def _doom_loop(self) -> DoomLoop:
        """With the calls of the attempts before, or the same loop would get a fresh three."""
        doom_loop = DoomLoop()
        for command, fingerprint in self._transcript.dispatched:
            doom_loop.check(command, fingerprint)
        return doom_loop

    # -- after the loop -------------------------------------------------------------------------------

    async def _verified(self, checker: SandboxChecker) -> CheckResult:
        result = await checker.check()
        await self._record("verify_finished", step=self._transcript.step, **result.as_dict())
        return result

    async def _seal(self, stopped: Stopped, checked: CheckResult | None = None) -> Done:
        ending = await self._ending(stopped, checked)
        await self._tools.store.seal(self._claim.lease, ending)
        _log.info("sealed", action="task_sealed", task_id=self._envelope.task_id, outcome=ending.outcome)
        return Done("sealed", ending)

    async def _ending(self, stopped: Stopped, checked: CheckResult | None) -> Ending:
        await self._books.record("stopped", stop=stopped.stop.value, reason=stopped.reason)
        trajectory = await self._books.trajectory()
        artifacts = {"trajectory": trajectory.ref}
        changed = worktree.Changes()
        if self._checker and self._checker.snapshot:
            changed = worktree.changes(self._before, worktree.files_in(self._checker.snapshot))
            artifacts["work_tree"] = (await self._tools.artifacts.aput(self._checker.snapshot)).ref
        phases = {"open": self._open_seconds, **self._transcript.seconds}
        return Ending(
            stop=stopped.stop,
            verdict=checked.verdict if checked else Verdict.NOT_RUN,
            reward=float(checked.passed) if checked else None,
            reason=stopped.reason[:1_000],
            report=" ".join(stopped.report.split())[:2_000],
            evidence=stopped.evidence,
            usage=self._books.usage,
            iterations_used=self._transcript.step,
            tokens_saved=self._transcript.tokens_saved,
            seconds={**phases, "wallclock": self._books.wallclock_seconds()},
            files_touched=changed.files,
            lines_added=changed.added,
            lines_removed=changed.removed,
            isolation=self._envelope.sandbox.backend if self._sandbox else "",
            artifacts=artifacts,
        )

    async def _give_back(self) -> Done:
        """Hand over: checkpoint, then release without charging an attempt."""
        if self._sandbox and self._transcript.step:
            await self._sandbox.freeze()
            snapshot = await self._sandbox.snapshot(max_bytes=snapshot_bytes(self._sandbox.spec))
            await self._books.checkpoint(snapshot)
        await self._tools.store.release(self._claim.lease, cause="handover", charge=False)
        return Done("released", cause="handover")

    async def _release(self, cause: str) -> Done:
        _log.warning("released", action="task_released", task_id=self._envelope.task_id, cause=cause)
        await self._tools.store.release(self._claim.lease, cause=cause, charge=True)
        return Done("released", cause=cause)

    async def _record(self, type_: str, /, **data: Any) -> None:
        self._transcript.apply(await self._books.record(type_, **data))
