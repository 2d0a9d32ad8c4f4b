"""What a call asks for: the prompt as it is now, and as many tokens as budget, window and time can bear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zubble_queue.contracts.books import Books, Left
from zubble_queue.contracts.decisions import StepView
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model import (
    MAX_TOKENS_BY_LEVEL,
    SMALLEST_CALL_TOKENS,
    CallOptions,
    Message,
    Model,
    estimate_prompt_tokens,
)
from zubble_queue.errors import BudgetExceededError
from zubble_worker.deciding import Deciding
from zubble_worker.stopping import Stopping
from zubble_worker.transcript import Transcript

_SAFE_SHARE: Final = 0.8
"""Of the seconds left, what a call may be expected to take (C16)."""


class Assembler:
    """Makes the requests of one run."""

    def __init__(self, transcript: Transcript, model: Model, books: Books, deciding: Deciding) -> None:
        self._talk, self._model, self._books, self._deciding = transcript, model, books, deciding
        self._envelope = transcript.job.envelope
        self.wanted_tokens: Final = min(MAX_TOKENS_BY_LEVEL[self._envelope.level], model.context_tokens // 2)
        """Of a reply, by the thinking level and the window."""

    def request(self, step: int) -> tuple[Sequence[Message], CallOptions]:
        """Messages and options of the next call.

        Raises:
            Stopping: The prompt does not fit into the window.
            BudgetExceededError: The budget cannot bear a useful call.
        """
        left = self._books.left()
        messages = self._talk.messages(left, room_tokens=self._model.context_tokens - self.wanted_tokens)
        if messages is None:
            raise Stopping(
                Stop.LIMIT_CONTEXT, f"the prompt does not fit into {self._model.context_tokens} tokens"
            )
        options = CallOptions(
            max_tokens=self._affordable(messages, left),
            deadline_seconds=max(left.seconds, 0.1),
            temperature=self._envelope.temperature,
            level=self._envelope.level,
            stop=self._talk.job.protocol.stops,
            response_schema=self._talk.job.protocol.schema,
        )
        view_of_run = StepView(step, left, self._talk.last_exit_code)
        return self._deciding.assemble(view_of_run, messages, options)

    def _affordable(self, messages: Sequence[Message], left: Left) -> int:
        """Completion tokens the budget can bear; below the smallest useful call a limit is reached (C43)."""
        prompt, price, budget = estimate_prompt_tokens(messages), self._model.price, self._envelope.budget
        bearable = left.tokens - prompt
        if bearable < SMALLEST_CALL_TOKENS:
            raise BudgetExceededError("tokens", f"max_tokens={budget.max_tokens} exceeded")
        money = left.micro_usd - price.micro_usd(prompt_tokens=prompt, completion_tokens=0)
        if money < price.micro_usd(prompt_tokens=0, completion_tokens=SMALLEST_CALL_TOKENS):
            raise BudgetExceededError("spend", f"max_spend_usd={budget.max_spend_usd} exceeded")
        if price.output > 0:
            bearable = min(bearable, int(money / price.output))
        if self._talk.tokens_per_second:
            in_time = int(_SAFE_SHARE * left.seconds * self._talk.tokens_per_second)
            bearable = min(bearable, max(in_time, SMALLEST_CALL_TOKENS))
        return min(self.wanted_tokens, bearable)
