"""One model call: assembled, reserved, watched, settled, recorded; on the books whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from zubble_queue.contracts.books import Books, Left
from zubble_queue.contracts.decisions import StepView
from zubble_queue.contracts.ending import Stop, Usage
from zubble_queue.contracts.model import (
    MAX_TOKENS_BY_LEVEL,
    SMALLEST_CALL_TOKENS,
    Admission,
    CallOptions,
    Cut,
    Message,
    Model,
    Reply,
    estimate_prompt_tokens,
)
from zubble_queue.errors import BudgetExceededError, ModelUnavailable
from zubble_worker import view
from zubble_worker.contact import Gate
from zubble_worker.deciding import Deciding
from zubble_worker.hearing import Hearing
from zubble_worker.observers.ladder import Ladder, ladder_for
from zubble_worker.observers.repetition import StreamGuard
from zubble_worker.opinions import Opinions
from zubble_worker.stopping import Stopping
from zubble_worker.transcript import Transcript

_BROKEN_STREAMS: Final = 3
"""So many streams in a row that break after their start are the provider's failure."""
_RESTART_TEMPERATURE: Final = 0.7
"""At least; at temperature 0 another seed changes nothing (C1)."""
_SAFE_SHARE: Final = 0.8
"""Of the seconds left, what a call may be expected to take (C16)."""


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
        self._talk, self._model, self._books, self._deciding = transcript, model, books, deciding
        self._gate, self._admission = gate, admission
        self._budget, self._level = transcript.job.envelope.budget, transcript.job.envelope.level
        self._call_prefix, self._calls = call_prefix, 0
        self._ladder = ladder_for(transcript.job.envelope.repetition).validate_reachable(
            self._wanted_tokens()
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
        restarted: Cut | None = None
        while len(broken) < _BROKEN_STREAMS:
            await self._gate.passed()
            reply = await self._call(step, kind, restarted)
            if reply is None:
                continue
            if reply.cut and reply.cut.evidence["action"] == "restart":
                restarted = reply.cut
                continue
            if reply.cut:
                reason = "the reply repeated itself until it was cut"
                raise Stopping(Stop(reply.cut.reason), reason, reply.cut.evidence)
            if reply.finish == "deadline":
                reason = f"max_wallclock_seconds={self._budget.max_wallclock_seconds} exceeded"
                raise Stopping(Stop.LIMIT_WALLCLOCK, reason)
            if reply.finish != "error":
                return reply
            broken.append(reply.detail)
        raise ModelUnavailable(f"{_BROKEN_STREAMS} streams in a row broke: {broken[-1]}")

    async def _call(self, step: int, kind: str, restarted: Cut | None) -> Reply | None:
        """One call, settled and recorded; None when the gate closed while it ran.

        After a restart the sampling is another one, and the graduated ladder holds (C1).
        """
        messages, options = self._request(step)
        if restarted:
            warmer = max(options.temperature, _RESTART_TEMPERATURE)
            options = replace(options, seed=self._calls, temperature=warmer)
        call_id = self._new_id(step)
        name = f"{self._talk.job.envelope.task_id}.{call_id}"
        options = replace(options, call_id=name)
        options = await self._reserved(call_id, messages, options)
        await self._record(
            "call_started",
            step=step,
            kind="restart" if restarted else kind,
            call_id=call_id,
            max_tokens=options.max_tokens,
            cause=restarted.evidence if restarted else None,
        )
        opinions = self._opinions(step, call_id)
        guard = StreamGuard(_without_burst(self._ladder) if restarted else self._ladder, opinions.ask)
        heard = Hearing(guard, self._admission, tokens_per_second=self._talk.tokens_per_second)
        options = replace(options, admission=heard.admission)
        usage = Usage()
        try:
            async with opinions:
                reply = await self._gate.unless_shut(self._model.query(messages, options, heard))
            usage = reply.usage if reply else self._estimate(messages, options, heard)
        except ModelUnavailable as failed:
            usage = failed.usage or Usage()
            raise
        except asyncio.CancelledError:
            usage = self._estimate(messages, options, heard)
            raise
        finally:
            await asyncio.shield(self._settle(call_id, usage))
        if reply is None:
            await self._record("call_closed", step=step, call_id=call_id, usage=usage.model_dump())
            return None
        self.nudges += guard.notes
        if reply.finish in {"length", "deadline"}:
            reply = replace(reply, cut=guard.unfinished_loop)
        finished = _described(options, reply, guard) | {"window": self._model.context_tokens}
        await self._record("call_finished", step=step, call_id=call_id, **finished)
        return reply

    def _new_id(self, step: int) -> str:
        self._calls += 1
        return f"{self._call_prefix}.{step}.{self._calls}"

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

    async def _reserved(self, call_id: str, messages: Sequence[Message], options: CallOptions) -> CallOptions:
        """With the tokens that batch and tenant can bear, which near a ceiling are fewer than asked for."""
        prompt, price = estimate_prompt_tokens(messages), self._model.price
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

    def _estimate(self, messages: Sequence[Message], options: CallOptions, heard: Hearing) -> Usage:
        """What a call that was cancelled has cost at most, from what was sent and what can have come."""
        heard.give_up()
        prompt = heard.tries * estimate_prompt_tokens(messages)
        completion = min(heard.completion_tokens, heard.tries * options.max_tokens)
        return Usage(
            calls=1,
            estimated_calls=1,
            prompt_tokens=prompt,
            completion_tokens=completion,
            spend_micro_usd=self._model.price.micro_usd(prompt_tokens=prompt, completion_tokens=completion),
        )

    def _request(self, step: int) -> tuple[Sequence[Message], CallOptions]:
        left = self._books.left()
        wanted = self._wanted_tokens()
        messages = self._talk.messages(left, room_tokens=self._model.context_tokens - wanted)
        if messages is None:
            raise Stopping(
                Stop.LIMIT_CONTEXT, f"the prompt does not fit into {self._model.context_tokens} tokens"
            )
        options = CallOptions(
            max_tokens=self._affordable(messages, wanted, left),
            deadline_seconds=max(left.seconds, 0.1),
            temperature=self._talk.job.envelope.temperature,
            level=self._level,
            stop=self._talk.job.protocol.stops,
            response_schema=self._talk.job.protocol.schema,
        )
        view_of_run = StepView(step, left, self._talk.last_exit_code)
        return self._deciding.assemble(view_of_run, messages, options)

    def _wanted_tokens(self) -> int:
        return min(MAX_TOKENS_BY_LEVEL[self._level], self._model.context_tokens // 2)

    def _affordable(self, messages: Sequence[Message], wanted: int, left: Left) -> int:
        """Completion tokens the budget can bear; below the smallest useful call a limit is reached (C43)."""
        prompt, price = estimate_prompt_tokens(messages), self._model.price
        bearable = left.tokens - prompt
        if bearable < SMALLEST_CALL_TOKENS:
            raise BudgetExceededError("tokens", f"max_tokens={self._budget.max_tokens} exceeded")
        money = left.micro_usd - price.micro_usd(prompt_tokens=prompt, completion_tokens=0)
        if money < price.micro_usd(prompt_tokens=0, completion_tokens=SMALLEST_CALL_TOKENS):
            raise BudgetExceededError("spend", f"max_spend_usd={self._budget.max_spend_usd} exceeded")
        if price.output > 0:
            bearable = min(bearable, int(money / price.output))
        if self._talk.tokens_per_second:
            in_time = int(_SAFE_SHARE * left.seconds * self._talk.tokens_per_second)
            bearable = min(bearable, max(in_time, SMALLEST_CALL_TOKENS))
        return min(wanted, bearable)

    async def _record(self, type_: str, /, **data: Any) -> None:
        self._talk.apply(await self._books.record(type_, **data))


def _without_burst(ladder: Ladder) -> Ladder:
    return replace(ladder, burst=None)


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
        "nudge_mode": "next_turn" if guard.notes else None,
        "tokens_saved": max(options.max_tokens - guard.tokens, 0) if reply.finish == "cut" else 0,
        "tokens_per_second": produced / reply.seconds if reply.seconds > 0 else None,
        "seconds": reply.seconds,
    }
