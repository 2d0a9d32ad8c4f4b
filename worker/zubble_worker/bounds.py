"""What a run must not exceed, looked at before each model call; a limit is an outcome, not a failure."""

from __future__ import annotations

from collections.abc import Sequence

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.decisions import Deny
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.model import SMALLEST_CALL_TOKENS, Model
from zubble_queue.errors import BudgetExceededError
from zubble_worker.questions import Questions
from zubble_worker.transcript import Transcript


class Bounds:
    """Budget, caps and tools of one run. Each check raises BudgetExceededError with the limit reached."""

    def __init__(self, transcript: Transcript, books: Books, model: Model, questions: Questions) -> None:
        self._talk, self._books, self._questions = transcript, books, questions
        self._envelope: TaskEnvelope = transcript.job.envelope
        self._free = model.price.input == 0 and model.price.output == 0

    def before_step(self) -> None:
        """In the contract's order: iterations, wall clock, tokens, spend (B7)."""
        budget, left = self._envelope.budget, self._books.left()
        if self._talk.step + 1 > budget.max_iterations:
            raise BudgetExceededError("iterations", f"max_iterations={budget.max_iterations} exceeded")
        if left.seconds <= 0:
            raise BudgetExceededError(
                "wallclock", f"max_wallclock_seconds={budget.max_wallclock_seconds} exceeded"
            )
        if left.tokens < SMALLEST_CALL_TOKENS:
            raise BudgetExceededError("tokens", f"max_tokens={budget.max_tokens} exceeded")
        if left.micro_usd <= 0 and not self._free:
            raise BudgetExceededError("spend", f"max_spend_usd={budget.max_spend_usd} exceeded")

    async def before_call(self) -> None:
        """The caps; where somebody sits at the run, each asks to be extended by as much again (C47)."""
        try:
            self.check_caps()
        except BudgetExceededError as cap:
            question = f"{cap.reason}. Go on for as much again?"
            asks = self._envelope.ask.caps
            if not asks or isinstance(await self._questions.permitted("cap", cap.limit, question), Deny):
                raise
            await self.before_call()

    def check_caps(self) -> None:
        """What ends a run gracefully before an outside SIGKILL does (V2, C47); 0 is none."""
        steps = self._extended("max_steps", self._envelope.max_steps)
        seconds = self._extended("max_turn_secs", self._envelope.max_turn_secs)
        if steps and self._talk.watching.calls + 1 > steps:
            raise BudgetExceededError("max_steps", f"max_steps={steps} exceeded")
        used = self._envelope.budget.max_wallclock_seconds - self._books.left().seconds
        if seconds and used >= seconds:
            raise BudgetExceededError("max_turn_secs", f"max_turn_secs={seconds} exceeded")

    def _extended(self, cap: str, value: int) -> int:
        return value * (1 + self._talk.inquiry.extended[cap])

    def check_tools(self, names: Sequence[str]) -> None:
        """The whitelist is a kill switch: a tool outside it is not dispatched and ends the run (C23, C42)."""
        allowed = self._envelope.task.allowed_tools
        for name in names:
            if name not in allowed:
                reason = f"tool {name[:60]!r} is not among allowed_tools ({', '.join(allowed)})"
                raise BudgetExceededError("allowed_tools", reason)
