"""What a run may do: its policy decides, and a person where the policy asks for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from zubble_queue.contracts.books import Books
from zubble_queue.contracts.decisions import Allow, Deny, StepView
from zubble_queue.contracts.ending import Stop
from zubble_worker.deciding import Deciding
from zubble_worker.questions import Questions
from zubble_worker.stopping import Stopping
from zubble_worker.transcript import Transcript


class Permission:
    """Asked by the loop at three of the four decision points; the fourth, the route, needs nobody's leave."""

    def __init__(
        self, transcript: Transcript, books: Books, deciding: Deciding, questions: Questions
    ) -> None:
        self._talk, self._books = transcript, books
        self._deciding, self._questions = deciding, questions

    def not_refused(self) -> bool:
        """Whether another step is not denied outright; nobody is asked for it now."""
        return not isinstance(self._deciding.before_step(self._view()), Deny)

    async def to_step(self) -> None:
        """Raises Stopping where the next step may not be made."""
        answer = await self._questions.decided(self._deciding.before_step(self._view()), "step")
        if isinstance(answer, Deny):
            raise Stopping(Stop.BLOCKED, answer.reason)

    async def denied(self, asked: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The first call (tool and command) that is denied, and why; empty where all may be made."""
        for tool, command in asked:
            gate = self._deciding.before_dispatch(self._view(), tool, command)
            answer = await self._questions.decided(gate, tool, command)
            if isinstance(answer, Deny):
                return {"tool": tool, "command": command, "reason": answer.reason}
        return {}

    async def to_stop(self, kind: Literal["submit", "report"], report: str) -> Allow | Deny:
        """Whether the model's word that it is done, or gives up, is taken."""
        return await self._questions.decided(
            self._deciding.wants_to_stop(self._view(), kind, report), kind, report
        )

    def _view(self) -> StepView:
        return StepView(self._talk.step + 1, self._books.left(), self._talk.last_exit_code)
