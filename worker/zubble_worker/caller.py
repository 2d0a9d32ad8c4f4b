"""One model call: assembled, reserved, watched, settled, recorded; on the books whatever becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.ending import Stop, Usage
from zubble_queue.contracts.model import (
    SMALLEST_CALL_TOKENS,
    Admission,
    CallOptions,
    Model,
    Reply,
    estimate_prompt_tokens,
    estimate_tokens,
)
from zubble_queue.errors import ModelUnavailable
from zubble_worker import view
from zubble_worker.again import Again
from zubble_worker.assembling import Assembler
from zubble_worker.contact import Gate
from zubble_worker.deciding import Deciding
from zubble_worker.hearing import Hearing
from zubble_worker.measures import WHOLE_TURNS
from zubble_worker.observers.ladder import ladder_for
from zubble_worker.observers.repetition import RESTART_PREFIX, StreamGuard
from zubble_worker.opinions import Opinions
from zubble_worker.pressure import FULL_SHARE, Pressure
from zubble_worker.stopping import Stopping
from zubble_worker.transcript import Transcript

_BROKEN_STREAMS: Final = 3
"""So many streams in a row that break after their start are the provider's failure."""
_ONCE_MORE: Final = frozenset({"restart", RESTART_PREFIX, "compact"})
"""Actions of a cut after which the call is made once more; each once a turn."""
_REASONS: Final = {
    Stop.LOOP_TEXT: "the reply repeated itself until it was cut",
    Stop.LIMIT_CONTEXT: "prompt and reply had nearly filled the context",
}


class Caller:
    """Asks the model within what the budget can bear.

    Args:
        call_prefix: Makes call ids unique over attempts, as in `<epoch>`.
    """

    def __init__(
        self,
        transcript: Transcript,
        model: Model,
        books: Books,
        deciding: Deciding,
        *,
        call_prefix: str,
        gate: Gate,
        admission: Admission | None = None,
    ) -> None:
        self._talk, self._model, self._books = transcript, model, books
        self._gate, self._admission = gate, admission
        self._assembler = Assembler(transcript, model, books, deciding)
        self._budget = transcript.job.envelope.budget
        self._call_prefix, self._calls = call_prefix, 0
        self._ladder = ladder_for(transcript.job.envelope.repetition).validate_reachable(
            self._assembler.wanted_tokens
        )
        self.nudges: list[str] = []
        """What the next observation must tell the model about its last replies."""

    async def ask(self, step: int, kind: str) -> Reply:
        """A whole reply.

        Raises:
            Stopping: It was cut, or the wall clock ran out while it came.
            BudgetExceededError: The budget cannot bear another useful call.
            CeilingReached: Batch or tenant may spend no more for now.
            ModelUnavailable: The provider failed.
        """
        broken: list[str] = []
        again = Again()
        while len(broken) < _BROKEN_STREAMS:
            await self._gate.passed()
            reply = await self._call(step, kind, again)
            if reply is None:
                continue
            if reply.cut:
                again = await self._once_more(step, reply, again)
                continue
            if reply.finish == "deadline":
                reason = f"max_wallclock_seconds={self._budget.max_wallclock_seconds} exceeded"
                raise Stopping(Stop.LIMIT_WALLCLOCK, reason)
            if reply.finish != "error":
                return reply
            broken.append(reply.detail)
        raise ModelUnavailable(f"{_BROKEN_STREAMS} streams in a row broke: {broken[-1]}")

    async def _once_more(self, step: int, reply: Reply, again: Again) -> Again:
        """How to make a call again whose stream was cut. Raises Stopping where it is not to be."""
        assert reply.cut is not None
        action, stop = reply.cut.evidence["action"], Stop(reply.cut.reason)
        borne = action in _ONCE_MORE - again.done
        if not borne or (action == "compact" and not await self._compacted(step)):
            raise Stopping(stop, _REASONS[stop], reply.cut.evidence)
        job = self._talk.job
        continues = self._model.continues(job.envelope.level)
        return again.after(reply, structured=job.protocol.schema is not None, continues=continues)

    async def _compacted(self, step: int) -> bool:
        """Whether leaving out older results has made the prompt shorter (C14)."""
        before = estimate_prompt_tokens(self._talk.turns)
        await self._record("view_compacted", step=step, kept=WHOLE_TURNS, share=FULL_SHARE)
        return estimate_prompt_tokens(self._talk.turns) < before

    async def _call(self, step: int, kind: str, again: Again) -> Reply | None:
        """One call, settled and recorded; None when the gate closed while it ran."""
        messages, options = self._assembler.request(step)
        messages, options = again.applied(messages, options, seed=self._calls)
        prompt = estimate_prompt_tokens(messages) + estimate_tokens(options.prefix)
        call_id = self._new_id(step)
        options = replace(options, call_id=f"{self._talk.job.envelope.task_id}.{call_id}")
        options = await self._reserved(call_id, prompt, options)
        await self._record(
            "call_started",
            step=step,
            kind="restart" if again.done else kind,
            call_id=call_id,
            max_tokens=options.max_tokens,
            prompt_estimate=prompt,
            prefix=options.prefix,
            cause=again.cause,
        )
        opinions = self._opinions(step, call_id)
        guard = self._guard(opinions, again)
        heard = Hearing(
            guard,
            self._admission,
            pressure=Pressure(self._talk.window.expected(prompt), self._model.context_tokens),
            tokens_per_second=self._talk.tokens_per_second,
        )
        options = replace(options, admission=heard.admission)
        usage = Usage()
        try:
            async with opinions:
                reply = await self._gate.unless_shut(self._model.query(messages, options, heard))
            usage = reply.usage if reply else self._estimate(prompt, options, heard)
        except ModelUnavailable as failed:
            usage = failed.usage or Usage()
            raise
        except asyncio.CancelledError:
            usage = self._estimate(prompt, options, heard)
            raise
        finally:
            await asyncio.shield(self._settle(call_id, usage))
        if reply is None:
            await self._record("call_closed", step=step, call_id=call_id, usage=usage.model_dump())
            return None
        if reply.finish in {"length", "deadline"} or (reply.cut and not guard.cut):
            reply = replace(reply, cut=guard.unfinished_loop or reply.cut)
        reply = again.joined(reply)
        mode = _nudge_mode(reply, guard)
        self.nudges += guard.notes if mode == "next_turn" else []
        finished = _described(options, reply, guard)
        finished |= {"nudge_mode": mode, "window": self._model.context_tokens}
        await self._record("call_finished", step=step, call_id=call_id, **finished)
        return reply

    def _new_id(self, step: int) -> str:
        self._calls += 1
        return f"{self._call_prefix}.{step}.{self._calls}"

    def _guard(self, opinions: Opinions, again: Again) -> StreamGuard:
        """After a restart the graduated ladder holds (C1)."""
        ladder = replace(self._ladder, burst=None) if "restart" in again.done else self._ladder
        restarts = RESTART_PREFIX not in again.done and self._model.continues(self._talk.job.envelope.level)
        return StreamGuard(ladder, opinions.ask, restarts=restarts)

    def _opinions(self, step: int, call_id: str) -> Opinions:
        envelope = self._talk.job.envelope
        return Opinions(
            self._model,
            self._books,
            self._record,
            context=f"TASK\n{envelope.task.description}\n\n{self._talk.plan.render()}",
            about=call_id,
            new_id=partial(self._new_id, step),
            step=step,
            task_id=envelope.task_id,
            admission=self._admission,
        )

    async def _reserved(self, call_id: str, prompt: int, options: CallOptions) -> CallOptions:
        """With the tokens that batch and tenant can bear, which near a ceiling are fewer than asked for."""
        price = self._model.price
        smallest = min(options.max_tokens, SMALLEST_CALL_TOKENS)
        worst = price.micro_usd(prompt_tokens=prompt, completion_tokens=options.max_tokens)
        try:
            granted = await self._books.reserve(
                call_id,
                tokens=prompt + options.max_tokens,
                micro_usd=worst,
                least_micro_usd=price.micro_usd(prompt_tokens=prompt, completion_tokens=smallest),
            )
        finally:
            await self._note_parking(call_id)
        if granted >= worst:
            return options
        money = granted - price.micro_usd(prompt_tokens=prompt, completion_tokens=0)
        return replace(options, max_tokens=max(int(money / price.output), smallest))

    async def _settle(self, call_id: str, usage: Usage) -> None:
        await self._books.settle(call_id, usage)
        await self._note_parking(call_id)

    async def _note_parking(self, call_id: str) -> None:
        if seconds := await self._books.parked():
            await self._record("parked", call_id=call_id, seconds=seconds)

    def _estimate(self, prompt: int, options: CallOptions, heard: Hearing) -> Usage:
        """What a call that was cancelled has cost at most, from what was sent and what can have come."""
        heard.give_up()
        prompt = heard.tries * prompt
        completion = min(heard.completion_tokens, heard.tries * options.max_tokens)
        return Usage(
            calls=1,
            estimated_calls=1,
            prompt_tokens=prompt,
            completion_tokens=completion,
            spend_micro_usd=self._model.price.micro_usd(prompt_tokens=prompt, completion_tokens=completion),
        )

    async def _record(self, type_: str, /, **data: Any) -> None:
        self._talk.apply(await self._books.record(type_, **data))


def _nudge_mode(reply: Reply, guard: StreamGuard) -> str | None:
    """How the model is told that it repeated itself (C4); None where there is nothing to tell."""
    if reply.cut and reply.cut.evidence["action"] == RESTART_PREFIX:
        return RESTART_PREFIX
    return "next_turn" if guard.notes else None


def _described(options: CallOptions, reply: Reply, guard: StreamGuard) -> dict[str, Any]:
    """A finished call as its event holds it: raw text, the cut view, money, detector, time."""
    produced, was_cut = reply.usage.completion_tokens, reply.cut is not None
    return {
        "finish": reply.finish,
        "detail": reply.detail,
        "text": reply.text,
        "view": "" if was_cut else view.cut(reply.text, view.REPLY_CHARS),
        "reasoning": reply.reasoning,
        "tool_calls": [list(call) for call in reply.tool_calls],
        "usage": reply.usage.model_dump(),
        "retries": [asdict(retry) for retry in reply.retries],
        "repetition": [fired.as_dict() for fired in guard.fired],
        "tokens_saved": max(options.max_tokens - guard.tokens, 0) if reply.finish == "cut" else 0,
        "tokens_per_second": produced / reply.seconds if reply.seconds > 0 else None,
        "seconds": reply.seconds,
    }
