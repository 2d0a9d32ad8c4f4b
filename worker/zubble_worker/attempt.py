"""One attempt: open the sandbox, drive the loop, verify, seal; whatever happens, one of these ends follows.

sealed      the ending is written                        released  given back to the queue, by cause
dropped     the lease was lost; nothing more is written
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import structlog

from zubble_queue.contracts import failure
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import UNVERIFIED_STOPS, Ending, Stop, Verdict
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.memory import MemoryEntry, namespace, reads, writes
from zubble_queue.contracts.model import SMALLEST_CALL_TOKENS, estimate_tokens
from zubble_queue.contracts.record import Claim
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.errors import CeilingReached, InfraError, JobError, LeaseLost, ModelUnavailable
from zubble_worker import endings, journal, memory
from zubble_worker.books import AttemptBooks
from zubble_worker.check import SandboxChecker
from zubble_worker.contact import Gate, patiently
from zubble_worker.lease import Interruption, LeaseKeeper
from zubble_worker.loop import AgentLoop
from zubble_worker.observers.doom_loop import DoomLoop
from zubble_worker.provider import Admission
from zubble_worker.resuming import acted_on, interruption, kept_branch
from zubble_worker.salvage import Salvage, Salvaged
from zubble_worker.stopping import Stopped
from zubble_worker.tools import Tools
from zubble_worker.transcript import Job, Transcript
from zubble_worker.workplace import Workplace

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_WALLCLOCK_GRACE_SECONDS: Final = 30.0
"""The loop keeps its own deadline; this ends one that hangs all the same."""


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
        self._gate = Gate()
        self._books = AttemptBooks(claim, tools.store, tools.artifacts, gate=self._gate, bell=tools.bell)
        self._transcript = Transcript(Job(claim.envelope, ""))
        self._place: Workplace | None = None
        self._loop: AgentLoop | None = None
        self._handover = asyncio.Event()

    def hand_over(self) -> None:
        """Ask the attempt to checkpoint and give its task back."""
        self._handover.set()

    async def save(self) -> None:
        """Checkpoint now where the work tree is at rest, else when the running command has ended."""
        if self._place is None or self._loop is None or not self._gate.is_open:
            return
        sandbox, loop = self._place.sandbox, self._loop
        await sandbox.freeze()
        try:
            await self._books.checkpoint(self._place.snapshot, unless=lambda: loop.executing)
        finally:
            if self._gate.is_open:
                await sandbox.thaw()

    async def run(self) -> Done:
        """Until the task is sealed, given back, or no longer ours."""
        try:
            return await self._whatever_happens()
        except LeaseLost:
            return Done("dropped", cause="lease lost")
        finally:
            if self._place:
                await self._place.close()

    async def _whatever_happens(self) -> Done:
        try:
            return await self._to_an_end()
        except LeaseLost:
            raise
        except CeilingReached as reached:
            return await self._give_back(str(reached))
        except Exception as error:  # noqa: BLE001 - the attempt's edge: every failure has an owner and an end
            return await self._failed(error)

    async def _to_an_end(self) -> Done:
        stopped = await self._uninterrupted(self._work())
        if isinstance(stopped, Interruption):
            return await self._interrupted(stopped)
        if stopped.stop in UNVERIFIED_STOPS or self._place is None:
            return await self._seal(stopped)
        result = await self._uninterrupted(self._verified(self._place.checker))
        if isinstance(result, Interruption):
            return await self._interrupted(result)
        return await self._seal(stopped, result)

    async def _interrupted(self, interruption: Interruption) -> Done:
        match interruption:
            case Interruption.CANCELLED:
                return await self._seal(Stopped(Stop.CANCELLED, "cancelled by the operator"))
            case Interruption.HANDOVER:
                return await self._give_back("handover")
            case Interruption.LOST:
                return Done("dropped", cause="lease lost")

    async def _uninterrupted(self, work: Coroutine[Any, Any, T]) -> T | Interruption:
        """The work's result, or what interrupted it; then the work has been cancelled and has ended."""
        working = asyncio.create_task(work)
        renewing = LeaseKeeper(
            self._tools.store,
            self._claim.lease,
            self._tools.lease,
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
        _log.warning("standing still", action="attempt_frozen", task_id=self._envelope.task_id)
        self._gate.shut(since=max(since, self._books.parking.last))
        if self._place:
            await self._place.sandbox.freeze()

    async def _go_on(self) -> None:
        _log.info("going on", action="attempt_thawed", task_id=self._envelope.task_id)
        if self._place:
            await self._place.sandbox.thaw()
        self._gate.open()

    # -- before the loop ------------------------------------------------------------------------------

    async def _work(self) -> Stopped:
        await self._books.record(
            "claimed", worker=self._tools.worker_id, previous_end=self._claim.previous_end
        )
        model = self._tools.models.get(self._envelope.model)
        if model is None:
            reason = f"model {self._envelope.model!r} is not defined on this worker"
            raise ModelUnavailable(reason, permanent=True)
        job = Job(self._envelope, await self._instructions())
        self._transcript = Transcript(job)
        if estimate_tokens(job.opening()[-1].content) > self._envelope.task.context_budget_tokens:
            budget = self._envelope.task.context_budget_tokens
            return Stopped(Stop.LIMIT_CONTEXT, f"context_budget_tokens={budget} exceeded by the instructions")
        self._place = place = await Workplace.open(self._claim, self._tools)
        await self._record(
            "sandbox_opened", backend=self._envelope.sandbox.backend, seconds=place.opening_seconds
        )
        await self._preflight(place.checker)
        await self._take_up(place.sandbox)
        await self._recall()
        await self._books.baseline(place.sandbox)
        self._loop = loop = AgentLoop(
            self._transcript,
            model=model,
            sandbox=place.sandbox,
            books=self._books,
            checker=place.checker,
            doom_loop=self._doom_loop(),
            call_prefix=str(self._claim.lease.epoch),
            gate=self._gate,
            admission=self._admission(),
        )
        return await self._within_wallclock(loop.run())

    def _admission(self) -> Admission | None:
        limits = self._tools.limits.get(self._envelope.model)
        return Admission(limits, self._books.parking) if limits else None

    async def _within_wallclock(self, run: Coroutine[Any, Any, Stopped]) -> Stopped:
        """The loop keeps its own deadline; one that hangs all the same is ended a little later."""
        running = asyncio.ensure_future(run)
        latest = self._envelope.budget.max_wallclock_seconds + _WALLCLOCK_GRACE_SECONDS
        try:
            while (left := latest - self._books.wallclock_seconds()) > 0:
                await asyncio.wait({running}, timeout=left)
                if running.done():
                    return running.result()
            return Stopped(Stop.LIMIT_WALLCLOCK, "the step did not end at its deadline")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _instructions(self) -> str:
        instructions = self._envelope.instructions
        if isinstance(instructions, BlobRef):
            return (await self._tools.artifacts.aget(instructions)).decode("utf-8", "replace")
        return instructions

    async def _preflight(self, checker: SandboxChecker) -> None:
        """Once per content: the check must be runnable, and must fail on the untouched tree (F9)."""
        content, store = self._envelope.content_hash(), self._tools.store
        if self._envelope.preflight == "off" or await patiently(lambda: store.preflighted(content)):
            return
        result = await checker.check()
        await self._record("preflight_finished", **result.as_dict())
        if result.verdict is Verdict.PASSED:
            raise JobError("verify_command passes before anything was done, so it proves nothing")
        if result.verdict is Verdict.ERROR:
            raise JobError(f"verify_command cannot judge the untouched work tree: {result.error}")
        await patiently(lambda: store.set_preflighted(content))

    async def _take_up(self, sandbox: Sandbox) -> None:
        """Go on where an earlier attempt was checkpointed, or say that there was one."""
        if self._claim.previous_end == "none":
            return
        point = self._claim.checkpoint
        if point and point.snapshot:
            await sandbox.restore(await self._tools.artifacts.aget(point.snapshot))
            events = acted_on(kept_branch(await self._books.past_events()))
            self._transcript.replay(events)
            at, past = events[-1].seq, interruption(events)
        else:
            at, past = 0, journal.render(await self._trials())
        text = (
            f"[harness] The environment was restarted at step {self._transcript.step}. Background processes "
            f"and files outside the work tree are gone.{' ' if past else ''}{past}"
        )
        await self._record(
            "restarted",
            resumed_from=at,
            step=self._transcript.step,
            text=text,
            cause=self._claim.previous_end,
            number=self._claim.lease.epoch - 1,
            spend_micro_usd=self._claim.usage.spend_micro_usd,
        )

    async def _recall(self) -> None:
        """Quote earlier runs of the task type, once per task: a restored transcript has them already."""
        if not reads(self._envelope.memory) or self._transcript.memory_read is not None:
            return
        facts = namespace(self._envelope.task_type)
        entries = await patiently(lambda: self._tools.store.load_facts(facts))
        opening = estimate_tokens(self._transcript.job.opening()[-1].content)
        room = self._envelope.task.context_budget_tokens - opening
        found = memory.recalled(self._envelope, entries, room_tokens=room)
        await self._record("memory_read", namespace=facts, read=list(found.read), text=found.text)

    async def _memory_of(self, ending: Ending) -> MemoryEntry | None:
        if not writes(self._envelope.memory):
            return None
        trials = await self._trials()
        return memory.entry_of(self._envelope, ending, trials, round_=self._claim.lease.round)

    async def _trials(self) -> list[JournalEntry]:
        return await patiently(lambda: self._tools.store.journal(self._envelope.task_id))

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

    async def _failed(self, error: Exception) -> Done:
        fault, reason = failure.of_error(error), str(error) or type(error).__name__
        _log.warning("failed", action="attempt_failed", task_id=self._envelope.task_id, fault=fault.value)
        if fault is failure.Fault.OPERATOR:
            return await self._seal(Stopped(Stop.INVALID, reason))
        if fault is failure.Fault.INFRA_PERMANENT:
            return await self._seal(Stopped(Stop.INFRA, reason))
        if not isinstance(error, InfraError):
            _log.error("a fault of our own", action="attempt_failed", exc_info=error)
            reason = f"a fault of our own: {type(error).__name__}"
        return await self._postpone(reason)

    async def _seal(self, stopped: Stopped, checked: CheckResult | None = None) -> Done:
        ending = await self._ending(stopped, checked)
        if number := await self._tried_again(ending):
            return Done("released", cause=f"retry {number} after {ending.outcome}")
        ending = endings.with_past(ending, self._claim)
        kept = await self._memory_of(ending)
        await patiently(lambda: self._tools.store.seal(self._claim.lease, ending, kept))
        _log.info("sealed", action="task_sealed", task_id=self._envelope.task_id, outcome=ending.outcome)
        return Done("sealed", ending)

    async def _ending(self, stopped: Stopped, checked: CheckResult | None) -> Ending:
        await self._note_hosts()
        await self._books.record("stopped", stop=stopped.stop.value, reason=stopped.reason)
        return endings.compose(
            stopped,
            checked,
            books=self._books,
            transcript=self._transcript,
            place=self._place,
            trajectory=await self._books.trajectory(),
            saved=await self._salvaged(judged=checked is not None),
        )

    async def _note_hosts(self) -> None:
        """What the agent's commands asked of their allow-list, by host."""
        if self._place and (uses := self._place.sandbox.host_uses):
            await self._books.record("hosts_asked_for", uses=[asdict(use) for use in uses])

    async def _salvaged(self, *, judged: bool) -> Salvaged:
        """What the agent changed; of the tree that was judged, where that is the last one."""
        if (salvage := self._salvage()) is None:
            return Salvaged()
        return await (salvage.judged() if judged else salvage.now(self._books.last_snapshot))

    def _salvage(self) -> Salvage | None:
        """None while the agent has done nothing."""
        if self._place is None or not self._transcript.step:
            return None
        return Salvage(self._place, self._tools.artifacts, seconds=self._tools.lease.lease_seconds / 2)

    async def _tried_again(self, ending: Ending) -> int | None:
        """The number of the retry that follows, where the batch asks for one and the budget can bear it."""
        left = self._books.left()
        if not (self._claim.retries_left and failure.may_be_tried_again(ending)):
            return None
        if left.tokens < SMALLEST_CALL_TOKENS or left.seconds <= 0 or left.micro_usd <= 0:
            return None
        point = await self._books.start_over()
        return await patiently(lambda: self._tools.store.try_again(self._claim.lease, ending, point))

    async def _give_back(self, cause: str) -> Done:
        """Checkpoint, then release: the next attempt goes on from here."""
        await self._keep_edits()
        await patiently(lambda: self._tools.store.release(self._claim.lease, cause=cause))
        return Done("released", cause=cause)

    async def _postpone(self, cause: str) -> Done:
        await self._keep_edits()
        delay = await patiently(lambda: self._tools.store.postpone(self._claim.lease, cause=cause))
        _log.warning(
            "postponed", action="task_postponed", task_id=self._envelope.task_id, cause=cause, delay=delay
        )
        return Done("released", cause=cause)

    async def _keep_edits(self) -> None:
        """Checkpoint what the agent changed, for whoever comes next; nothing fails because it fails."""
        if (salvage := self._salvage()) is None:
            return
        try:
            async with asyncio.timeout(self._tools.lease.lease_seconds / 2):
                await self._note_hosts()
                await self._books.checkpoint(salvage.snapshot, edits=salvage.edits)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - what failed before is what the record is about
            _log.warning(
                "edits not kept", action="salvage_failed", task_id=self._envelope.task_id, error=repr(error)
            )

    async def _record(self, type_: str, /, **data: Any) -> None:
        self._transcript.apply(await self._books.record(type_, **data))
