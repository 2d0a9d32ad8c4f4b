"""The ways out of an attempt; whatever stopped it, what the agent changed is kept first.

sealed      the ending is written                        released  given back to the queue, by cause
dropped     the lease was lost; nothing more is written  waiting   given up until a person has answered
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import Final

import structlog

from zubble_queue.contracts import failure
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import MICRO, Ending, Stop
from zubble_queue.contracts.model import SMALLEST_CALL_TOKENS
from zubble_queue.errors import InfraError, LeaseLost, SandboxUnavailable
from zubble_worker import endings
from zubble_worker.case import Case
from zubble_worker.contact import patiently
from zubble_worker.remembering import memory_of
from zubble_worker.reporting import report_of
from zubble_worker.salvage import Salvage, Salvaged
from zubble_worker.stopping import Stopped

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """How an attempt was left."""

    how: str
    """sealed, released, waiting or dropped."""
    ending: Ending | None = None
    cause: str = ""


LOST: Final = Done("dropped", cause="lease lost")


class Exits:
    """Leaves one case. Every way raises LeaseLost once another attempt owns the task."""

    def __init__(self, case: Case) -> None:
        self._case, self._store = case, case.tools.store

    async def failed(self, error: Exception) -> Done:
        """By what nobody caught: sealed or postponed, as the fault has it."""
        task_id = self._case.envelope.task_id
        fault, reason = failure.of_error(error), str(error) or type(error).__name__
        _log.warning("failed", action="attempt_failed", task_id=task_id, fault=fault.value)
        if fault is failure.Fault.OPERATOR:
            return await self.seal(Stopped(Stop.INVALID, reason))
        if fault is failure.Fault.INFRA_PERMANENT:
            return await self.seal(Stopped(Stop.INFRA, reason))
        if isinstance(error, SandboxUnavailable):
            self._case.tools.metrics.sandbox_failed(self._case.envelope.sandbox.backend)
        if isinstance(error, InfraError):
            return await self._postpone(reason)
        _log.error("a fault of our own", action="attempt_failed", exc_info=error)
        return await self._postpone(f"a fault of our own: {type(error).__name__}", unforeseen=True)

    async def seal(self, stopped: Stopped, checked: CheckResult | None = None) -> Done:
        """Write the ending, or have another attempt follow where the batch asks for it."""
        case = self._case
        ending = await self._ending(stopped, checked)
        if number := await self._tried_again(ending):
            return Done("released", cause=f"retry {number} after {ending.outcome}")
        ending = endings.with_past(ending, case.claim)
        kept = await memory_of(case, ending)
        await patiently(lambda: self._store.seal(case.claim.lease, ending, kept))
        _log.info("sealed", action="task_sealed", task_id=case.envelope.task_id, outcome=ending.outcome)
        return Done("sealed", ending)

    async def give_back(self, cause: str) -> Done:
        """Checkpoint, then release: the next attempt goes on from here."""
        await self.keep_edits()
        await patiently(lambda: self._store.release(self._case.claim.lease, cause=cause))
        return Done("released", cause=cause)

    async def wait_for_answer(self) -> Done:
        """Give slot and sandbox up while a person is asked; the checkpoint is from before the question."""
        await patiently(lambda: self._store.release(self._case.claim.lease, cause="awaiting_human"))
        spent, step = self._case.books.usage.spend_micro_usd / MICRO, self._case.transcript.step
        _log.info("waits for a person", action="task_waits", task_id=self._case.envelope.task_id)
        return Done("waiting", cause=f"awaiting_human ${spent:.4f} {step}-it")

    async def _postpone(self, cause: str, *, unforeseen: bool = False) -> Done:
        """Give back for later; the store seals what has failed too often."""
        await self.keep_edits()
        lease, task_id = self._case.claim.lease, self._case.envelope.task_id
        delay = await patiently(lambda: self._store.postpone(lease, cause=cause, unforeseen=unforeseen))
        if delay is None:
            ending = (await patiently(lambda: self._store.task(task_id))).ending
            _log.warning("sealed", action="task_sealed", task_id=task_id, cause=cause)
            return Done("sealed", ending)
        _log.warning("postponed", action="task_postponed", task_id=task_id, cause=cause, delay=delay)
        return Done("released", cause=cause)

    async def _ending(self, stopped: Stopped, checked: CheckResult | None) -> Ending:
        case = self._case
        await self._note_hosts()
        await case.books.record("stopped", stop=stopped.stop.value, reason=stopped.reason)
        return endings.compose(
            stopped,
            checked,
            books=case.books,
            transcript=case.transcript,
            place=case.place,
            trajectory=await case.books.trajectory(),
            saved=await self._with_report(await self._report(), judged=checked is not None),
        )

    async def _tried_again(self, ending: Ending) -> int | None:
        """The number of the retry that follows, where the batch asks for one and the budget can bear it."""
        claim, left = self._case.claim, self._case.books.left()
        if not (claim.retries_left and failure.may_be_tried_again(ending)):
            return None
        if left.tokens < SMALLEST_CALL_TOKENS or left.seconds <= 0 or left.micro_usd <= 0:
            return None
        point = await self._case.books.start_over()
        return await patiently(lambda: self._store.try_again(claim.lease, ending, point))

    async def _note_hosts(self) -> None:
        """What the agent's commands asked of their allow-list, by host."""
        place = self._case.place
        if place and (uses := place.sandbox.host_uses):
            await self._case.books.record("hosts_asked_for", uses=[asdict(use) for use in uses])

    async def _report(self) -> bytes:
        """Read before the place stands still."""
        case = self._case
        if case.place is None or not case.transcript.step:
            return b""
        return await report_of(case.envelope, case.place.sandbox)

    async def _with_report(self, report: bytes, *, judged: bool) -> Salvaged:
        saved = await self._salvaged(judged=judged)
        if not report:
            return saved
        kept = await self._case.tools.artifacts.aput(report)
        return replace(saved, artifacts={**saved.artifacts, "report": kept.ref})

    async def _salvaged(self, *, judged: bool) -> Salvaged:
        """What the agent changed; of the tree that was judged, where that is the last one."""
        if (salvage := self._salvage()) is None:
            return Salvaged()
        return await (salvage.judged() if judged else salvage.now(self._case.books.last_snapshot))

    def _salvage(self) -> Salvage | None:
        """None while the agent has done nothing."""
        case, tools = self._case, self._case.tools
        if case.place is None or not case.transcript.step:
            return None
        return Salvage(case.place, tools.artifacts, seconds=tools.lease.lease_seconds / 2)

    async def keep_edits(self) -> None:
        """Checkpoint what the agent changed, for whoever comes next; nothing fails because it fails."""
        if (salvage := self._salvage()) is None:
            return
        try:
            async with asyncio.timeout(self._case.tools.lease.lease_seconds / 2):
                await self._note_hosts()
                await self._case.books.checkpoint(salvage.snapshot, edits=salvage.edits)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - what failed before is what the record is about
            task_id = self._case.envelope.task_id
            _log.warning("edits not kept", action="salvage_failed", task_id=task_id, error=repr(error))
