"""The worker's service: claims what a message announces, runs it, and knows what is running."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import structlog

from zubble_queue import __version__
from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.envelope import Header
from zubble_queue.contracts.record import Claim, Refused, Unreadable, WorkerInfo
from zubble_queue.errors import StoreUnavailable
from zubble_worker.attempt import Attempt
from zubble_worker.contact import patiently
from zubble_worker.exits import LOST, Done
from zubble_worker.tools import Tools

_log = structlog.get_logger(__name__)


class Service:
    """Runs attempts on one event loop; at most `slots` at a time, because no more messages are taken."""

    def __init__(self, tools: Tools, info: WorkerInfo) -> None:
        self._tools, self._info = tools, info
        self._running: dict[Attempt, asyncio.Task[Done]] = {}
        self.draining = False
        self._stir = asyncio.Event()

    @property
    def busy(self) -> int:
        return len(self._running)

    def info(self) -> WorkerInfo:
        """As registered; a worker that is leaving has no slot to give."""
        slots = self.busy if self.draining else self._info.slots
        return self._info.model_copy(update={"slots": slots, "busy": self.busy, "version": __version__})

    async def run(self, header: Header) -> Done:
        """Claim and carry to its end; a message that announces nothing any more is dropped."""
        done = await self._run(header)
        self._tools.metrics.ended(header.pool, header.model, done.how, done.ending)
        if done == LOST:
            self._tools.metrics.lease_lost()
        return done

    async def _run(self, header: Header) -> Done:
        if self.draining:
            return Done("dropped", cause="draining")
        claim = await self._claim(header)
        if isinstance(claim, Refused):
            _log.info("dropped", action="message_dropped", task_id=header.task_id, reason=claim.reason)
            return Done("dropped", cause=claim.reason)
        if isinstance(claim, Unreadable):
            return await self._seal(claim)
        if self.draining:  # since the claim was sent
            return await self._give_back(claim)
        self._tools.metrics.claimed(header.pool, claim.waited_seconds)
        return await self._attempt(claim)

    async def _attempt(self, claim: Claim) -> Done:
        tools = self._tools
        counted = tools.metrics.of_model(claim.envelope.model)
        spans = tools.tracing.attempt(claim) if tools.tracing else None
        attempt = Attempt(claim, tools, (counted, spans) if spans else (counted,))
        task = asyncio.ensure_future(attempt.run())
        self._running[attempt] = task
        done = None
        try:
            done = await task
            return done
        finally:
            del self._running[attempt]
            if spans:
                spans.end(
                    done.how if done else "failed", done.ending.outcome if done and done.ending else None
                )

    async def _claim(self, header: Header) -> Claim | Unreadable | Refused:
        """Under one lease id: a claim whose answer was lost may have been granted, and is found again."""
        lease_id, worker_id = secrets.token_hex(16), self._tools.worker_id
        return await patiently(
            lambda: self._tools.store.claim(header, worker_id=worker_id, lease_id=lease_id)
        )

    async def _seal(self, claim: Unreadable) -> Done:
        """What the dispatcher let pass can be read; somebody else wrote this, and nothing of it is done."""
        _log.warning("unreadable", action="task_unreadable", task_id=claim.lease.task_id)
        ending = Ending(stop=Stop.INVALID, reason=claim.problem[:1_000])
        await patiently(lambda: self._tools.store.seal(claim.lease, ending))
        return Done("sealed", ending)

    async def _give_back(self, claim: Claim) -> Done:
        cause = "handover"
        await patiently(lambda: self._tools.store.release(claim.lease, cause=cause))
        return Done("released", cause=cause)

    def drain(self) -> None:
        """Claim nothing more, and let the feeder know at once."""
        self.draining = True
        self._stir.set()

    async def save(self) -> None:
        """Checkpoint every running attempt at once; one that cannot be is logged, and goes on."""
        attempts = list(self._running)
        for result in await asyncio.gather(*(attempt.save() for attempt in attempts), return_exceptions=True):
            if isinstance(result, BaseException):
                _log.warning("an attempt was not saved", action="save_failed", cause=str(result))

    async def idle(self, timeout_seconds: float) -> None:
        """Wait until nothing runs, at most so long."""
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=timeout_seconds)

    def hand_over(self) -> None:
        """Ask every running attempt to checkpoint and give its task back."""
        for attempt in self._running:
            attempt.hand_over()

    async def keep_registered(self, stop: asyncio.Event) -> None:
        """Renew this worker's registration until told to stop; then withdraw it."""
        seconds = self._tools.lease.renew_seconds
        while not stop.is_set():
            with contextlib.suppress(StoreUnavailable):
                await self._tools.store.register(self.info(), ttl_seconds=self._tools.lease.lease_seconds)
            await _either(stop, self._stir, seconds)
            self._stir.clear()
        with contextlib.suppress(StoreUnavailable):
            await self._tools.store.unregister(self._tools.worker_id)


async def _either(first: asyncio.Event, second: asyncio.Event, timeout_seconds: float) -> None:
    """Wait until one of them is set, at most so long."""
    waiting = [asyncio.create_task(first.wait()), asyncio.create_task(second.wait())]
    await asyncio.wait(waiting, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
