"""One attempt: open the sandbox, drive the loop, verify, seal; whatever happens, one of the exits follows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

import structlog

from zubble_queue.contracts.books import Listener
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import UNVERIFIED_STOPS, Stop
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.model import estimate_tokens
from zubble_queue.contracts.record import Claim
from zubble_queue.errors import AwaitingHuman, CeilingReached, InfraError, LeaseLost, ModelUnavailable
from zubble_worker.case import Case
from zubble_worker.check import SandboxChecker
from zubble_worker.exits import LOST, Done, Exits
from zubble_worker.human import DistantHuman
from zubble_worker.lease import Interruption, LeaseKeeper
from zubble_worker.loop import AgentLoop
from zubble_worker.preflight import preflight
from zubble_worker.protocols.making import custom_prompt
from zubble_worker.provider import Admission
from zubble_worker.remembering import recall
from zubble_worker.stopping import Stopped
from zubble_worker.taking_up import take_up
from zubble_worker.tools import Tools
from zubble_worker.transcript import Job, Transcript
from zubble_worker.workplace import Workplace

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_WALLCLOCK_GRACE_SECONDS: Final = 30.0
"""The loop keeps its own deadline; this ends one that hangs all the same."""


class Attempt:
    """Carries a claim to its end."""

    def __init__(self, claim: Claim, tools: Tools, listeners: Sequence[Listener] = ()) -> None:
        self._case = Case(claim, tools, listeners)
        self._exits = Exits(self._case)
        self._loop: AgentLoop | None = None
        self._handover = asyncio.Event()

    def hand_over(self) -> None:
        """Ask the attempt to checkpoint and give its task back."""
        self._handover.set()

    async def save(self) -> None:
        """Checkpoint now where the work tree is at rest, else when the running command has ended."""
        case, loop = self._case, self._loop
        if case.place is None or loop is None or not case.gate.is_open:
            return
        await case.place.sandbox.freeze()
        try:
            await case.books.checkpoint(case.place.snapshot, unless=lambda: loop.executing)
        finally:
            if case.gate.is_open:
                await case.place.sandbox.thaw()

    async def run(self) -> Done:
        """Until the task is sealed, given back, or no longer ours. Every line of its log names it."""
        lease = self._case.claim.lease
        structlog.contextvars.bind_contextvars(
            task_id=lease.task_id, batch=lease.batch, attempt=lease.epoch, round=lease.round
        )
        try:
            return await self._whatever_happens()
        except LeaseLost:
            return LOST
        finally:
            if self._case.place:
                await self._case.place.close()

    async def _whatever_happens(self) -> Done:
        try:
            return await self._to_an_end()
        except LeaseLost:
            raise
        except AwaitingHuman:
            return await self._exits.wait_for_answer()
        except CeilingReached as reached:
            return await self._exits.give_back(str(reached))
        except Exception as error:  # noqa: BLE001 - the attempt's edge: every failure has an owner and an end
            return await self._exits.failed(error)

    async def _to_an_end(self) -> Done:
        stopped = await self._uninterrupted(self._work())
        if isinstance(stopped, Interruption):
            return await self._interrupted(stopped)
        if stopped.stop in UNVERIFIED_STOPS or self._case.place is None:
            return await self._exits.seal(stopped)
        result = await self._uninterrupted(self._verified(self._case.place.checker))
        if isinstance(result, Interruption):
            return await self._interrupted(result)
        return await self._exits.seal(stopped, result)

    async def _interrupted(self, interruption: Interruption) -> Done:
        match interruption:
            case Interruption.CANCELLED:
                return await self._exits.seal(Stopped(Stop.CANCELLED, "cancelled by the operator"))
            case Interruption.HANDOVER:
                return await self._exits.give_back("handover")
            case Interruption.LOST:
                return LOST

    async def _uninterrupted(self, work: Coroutine[Any, Any, T]) -> T | Interruption:
        """The work's result, or what interrupted it; then the work has been cancelled and has ended."""
        tools = self._case.tools
        working = asyncio.create_task(work)
        renewing = LeaseKeeper(
            tools.store,
            self._case.claim.lease,
            tools.lease,
            on_silence=self._stand_still,
            on_contact=self._go_on,
        )
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

    async def _stand_still(self, since: float) -> None:
        """Redis has been silent for too long: buy nothing, run nothing, keep everything."""
        case = self._case
        _log.warning("standing still", action="attempt_frozen", task_id=case.envelope.task_id)
        case.gate.shut(since=max(since, case.books.parking.last))
        if case.place:
            await case.place.sandbox.freeze()

    async def _go_on(self) -> None:
        case = self._case
        _log.info("going on", action="attempt_thawed", task_id=case.envelope.task_id)
        if case.place:
            await case.place.sandbox.thaw()
        case.gate.open()

    async def _work(self) -> Stopped:
        case, tools, envelope = self._case, self._case.tools, self._case.envelope
        await case.books.record("claimed", worker=tools.worker_id, previous_end=case.claim.previous_end)
        model = tools.models.get(envelope.model)
        if model is None:
            reason = f"model {envelope.model!r} is not defined on this worker"
            raise ModelUnavailable(reason, permanent=True)
        job = Job(envelope, await self._instructions(), await self._prompt())
        case.transcript = Transcript(job)
        if estimate_tokens(job.opening()[-1].content) > envelope.task.context_budget_tokens:
            budget = envelope.task.context_budget_tokens
            return Stopped(Stop.LIMIT_CONTEXT, f"context_budget_tokens={budget} exceeded by the instructions")
        case.place = place = await Workplace.open(case.claim, tools)
        await case.record("sandbox_opened", backend=envelope.sandbox.backend, seconds=place.opening_seconds)
        await preflight(case, place.checker)
        await take_up(case, place.sandbox)
        await recall(case)
        await case.books.baseline(place.sandbox)
        self._loop = loop = AgentLoop(
            case.transcript,
            model=model,
            sandbox=place.sandbox,
            books=case.books,
            checker=place.checker,
            call_prefix=str(case.claim.lease.epoch),
            human=DistantHuman(case, self._exits),
            gate=case.gate,
            admission=self._admission(),
        )
        return await self._within_wallclock(loop.run())

    async def _instructions(self) -> str:
        instructions = self._case.envelope.instructions
        if isinstance(instructions, BlobRef):
            return (await self._case.tools.artifacts.aget(instructions)).decode("utf-8", "replace")
        return instructions

    async def _prompt(self) -> str:
        envelope = self._case.envelope
        if envelope.prompt.template is None:
            return ""
        return await custom_prompt(envelope, await self._case.tools.artifacts.aget(envelope.prompt.template))

    def _admission(self) -> Admission | None:
        limits = self._case.tools.limits.get(self._case.envelope.model)
        return Admission(limits, self._case.books.parking) if limits else None

    async def _within_wallclock(self, run: Coroutine[Any, Any, Stopped]) -> Stopped:
        """The loop keeps its own deadline; one that hangs all the same is ended a little later."""
        running = asyncio.ensure_future(run)
        latest = self._case.envelope.budget.max_wallclock_seconds + _WALLCLOCK_GRACE_SECONDS
        try:
            while (left := latest - self._case.books.wallclock_seconds()) > 0:
                await asyncio.wait({running}, timeout=left)
                if running.done():
                    return running.result()
            return Stopped(Stop.LIMIT_WALLCLOCK, "the step did not end at its deadline")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _verified(self, checker: SandboxChecker) -> CheckResult:
        result = await checker.check()
        await self._case.record("verify_finished", step=self._case.transcript.step, **result.as_dict())
        return result
