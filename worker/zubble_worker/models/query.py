"""One query: its tries, the waits between them, and what it comes to in tokens and money."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.model import (
    CallOptions,
    Message,
    Price,
    Reply,
    Retry,
    StreamWatcher,
    TryEnd,
    estimate_prompt_tokens,
    estimate_tokens,
)
from zubble_queue.errors import ModelUnavailable
from zubble_worker.models.assembly import Assembly
from zubble_worker.models.failure import TryFailed, TryKind

if TYPE_CHECKING:
    from typing import Literal

    from zubble_queue.contracts.model_config import ModelConfig

Try = Callable[[Assembly], Awaitable[None]]
"""Fills the assembly until the answer has ended or was cut; raises TryFailed."""

_LENGTHS: Final = frozenset({"length", "max_tokens", "model_length"})


class Query:
    """Makes tries until one delivers something, and turns that into a Reply."""

    def __init__(
        self,
        messages: Sequence[Message],
        options: CallOptions,
        watch: StreamWatcher,
        *,
        name: str,
        config: ModelConfig,
        price: Price,
    ) -> None:
        self._name, self._config, self._price = name, config, price
        self._options, self._watch = options, watch
        self._prompt_estimate = estimate_prompt_tokens(messages) + estimate_tokens(options.prefix)
        self._started = time.monotonic()
        self._assembly = Assembly(watch)
        self._retries: list[Retry] = []
        self._tries = self._throttled = 0
        self._admission = options.admission
        self._lost = 0
        """Tries that delivered nothing and may be billed."""
        self._broken: TryFailed | None = None
        """How a try failed that had delivered something."""

    async def run(self, attempt: Try) -> Reply:
        """Raises ModelUnavailable when nothing was delivered."""
        try:
            async with asyncio.timeout(self._options.deadline_seconds) as limit:
                self._limit = limit
                await self._retrying()(self._once, attempt)
        except TimeoutError as late:
            if not limit.expired():
                raise
            if not self._assembly.asked:
                raise self._unavailable(TryFailed("deadline", "no connection in time")) from late
            return self._reply("deadline")
        except TryFailed as failure:
            raise self._unavailable(failure) from failure
        return self._reply(self._finish())

    async def _once(self, attempt: Try) -> None:
        await self._enter()
        self._tries += 1
        self._assembly = Assembly(self._watch)
        kind: TryKind = "cancelled"
        retry_after = None
        try:
            await attempt(self._assembly)
            kind = "answered"
        except TryFailed as failure:
            kind, retry_after = failure.kind, failure.retry_after_seconds
            if self._assembly.delivered:
                self._broken = failure
                return
            self._lost += failure.may_be_billed
            raise
        finally:
            if self._admission:
                await asyncio.shield(self._admission.leave(TryEnd(kind, self._tokens(), retry_after)))

    async def _enter(self) -> None:
        """Wait for a place; no clock of this query runs meanwhile."""
        if self._admission is None or self._limit.expired():
            return
        asked, deadline = time.monotonic(), self._limit.when()
        self._limit.reschedule(None)
        try:
            await self._admission.enter(self._prompt_estimate + self._options.max_tokens)
        finally:
            waited = time.monotonic() - asked
            self._started += waited
            self._limit.reschedule(None if deadline is None else deadline + waited)

    def _tokens(self) -> int:
        usage = self._usage()
        return usage.tokens if self._assembly.asked else 0

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            sleep=asyncio.sleep,
            retry=retry_if_exception(lambda error: isinstance(error, TryFailed) and not error.permanent),
            wait=self._wait,
            stop=self._gives_up,
            before_sleep=self._note_retry,
            reraise=True,
        )

    def _wait(self, state: RetryCallState) -> float:
        """Full jitter; on top of it what the endpoint asked for."""
        jitter = wait_random_exponential(self._config.retry_base_seconds, self._config.max_retry_seconds)(
            state
        )
        asked = _failure(state).retry_after_seconds
        if self._parks(_failure(state)):
            return 0.0
        return jitter if asked is None else asked + min(jitter, self._config.retry_base_seconds)

    def _parks(self, failure: TryFailed) -> bool:
        """Whether the shared limits keep the next try waiting; then it is not one of the `retries`."""
        return self._admission is not None and failure.kind == "throttled"

    def _gives_up(self, state: RetryCallState) -> bool:
        failure = _failure(state)
        asked = failure.retry_after_seconds or 0.0
        if failure.cause == "parked":
            return True
        if self._admission and self._parks(failure):
            self._throttled += 1
            return asked > self._admission.patience_seconds
        left = self._started + self._options.deadline_seconds - time.monotonic()
        return (
            state.attempt_number - self._throttled > self._config.retries
            or asked > self._config.max_retry_seconds
            or state.upcoming_sleep >= left
        )

    def _note_retry(self, state: RetryCallState) -> None:
        self._retries.append(Retry(_failure(state).cause, state.attempt_number, state.upcoming_sleep))

    def _finish(self) -> Literal["stop", "length", "cut", "error"]:
        if self._assembly.cut is not None:
            return "cut"
        if self._broken is not None:
            return "error"
        if not self._assembly.ended or self._assembly.finish_reason in _LENGTHS:
            return "length"
        return "stop"

    def _reply(self, finish: Literal["stop", "length", "cut", "deadline", "error"]) -> Reply:
        seen = self._assembly
        return Reply(
            text=seen.text,
            usage=self._usage(),
            finish=finish,
            reasoning=seen.reasoning,
            tool_calls=seen.tool_calls,
            cut=seen.cut,
            retries=tuple(self._retries),
            detail=str(self._broken) if self._broken else "",
            seconds=time.monotonic() - self._started,
            time_to_first_token_seconds=seen.first_token_seconds,
            extra={
                "finish_reason": seen.finish_reason,
                "served_model": seen.served_model,
                "pieces": seen.pieces,
            },
        )

    def _usage(self) -> Usage:
        """As reported where the answer is whole; else the higher of what was reported and what was seen."""
        seen, reported = self._assembly, self._assembly.reported
        certain = reported is not None and seen.ended
        prompt = reported.prompt if reported else self._prompt_estimate
        completion = reported.completion if reported else 0
        if not certain:
            # No endpoint that keeps max_tokens bills more; one that does not has sent a piece for each.
            completion = max(completion, seen.pieces, min(seen.estimated_tokens, self._options.max_tokens))
        return self._priced(
            Usage(
                calls=1,
                estimated_calls=self._lost + (not certain),
                prompt_tokens=prompt + self._lost * self._prompt_estimate,
                completion_tokens=completion,
                cached_tokens=min(reported.cached, prompt) if reported else 0,
                reasoning_tokens=min(reported.reasoning, completion) if reported else 0,
            )
        )

    def _priced(self, usage: Usage) -> Usage:
        spend = self._price.micro_usd(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
        )
        return usage.model_copy(update={"spend_micro_usd": spend})

    def _unavailable(self, failure: TryFailed) -> ModelUnavailable:
        tries = f" after {self._tries} tries" if self._tries > 1 else ""
        lost = Usage(calls=1, estimated_calls=self._lost, prompt_tokens=self._lost * self._prompt_estimate)
        return ModelUnavailable(
            f"Model {self._name!r} failed{tries}: {failure}.",
            permanent=failure.permanent,
            retries=tuple(self._retries),
            usage=self._priced(lost) if self._lost else None,
        )


def _failure(state: RetryCallState) -> TryFailed:
    failure = state.outcome.exception() if state.outcome else None
    assert isinstance(failure, TryFailed)
    return failure
