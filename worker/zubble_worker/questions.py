"""How a run asks a person, and what it does where nobody is there (C18)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from zubble_queue.contracts.decisions import Allow, Answer, Ask, Deny
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.question import LATE, QUESTION_CHARS, Asked, Cause, Human, Question
from zubble_queue.contracts.question import Answer as Said
from zubble_worker.deciding import unattended
from zubble_worker.transcript import Transcript

Record = Callable[..., Awaitable[Event]]

_BY_DEADLINE: Final = Said(text=LATE, allowed=False, by="deadline")


class Questions:
    """Asks for one run; what was answered holds for the step it was asked in.

    Args:
        transcript: Knows what was asked already.
        human: Whoever answers; without one, or in an unattended task, nobody is asked.
        record: Writes an event.
    """

    def __init__(self, transcript: Transcript, human: Human | None, record: Record) -> None:
        self._talk, self._record = transcript, record
        self._request = transcript.job.envelope.ask
        self._human = human if self._request.human else None

    async def ask(self, text: str) -> str:
        """The agent's own question; returns what it is told."""
        if self._human is None:
            return self._request.default_answer
        unanswered = Said(text=self._request.default_answer, by="deadline")
        said = await self._put(self._human, "agent", "", text, unanswered)
        return _said(said)

    async def decided(self, answer: Answer, subject: str, shown: str = "") -> Allow | Deny:
        """A policy's answer, with the person's in place of an Ask.

        Args:
            answer: What the policy said.
            subject: What it was asked about.
            shown: What the person must see, too: the command, the report.
        """
        if not isinstance(answer, Ask):
            return answer
        if self._human is None:
            return unattended(answer.question)
        text = f"{answer.question}\n{subject}: {shown}" if shown else answer.question
        return await self.permitted("policy", subject, text)

    async def permitted(self, cause: Cause, subject: str, text: str) -> Allow | Deny:
        """Whether a person approves of something."""
        if self._human is None:
            return unattended(text)
        if len(text) > QUESTION_CHARS:
            return Deny(f"it has more than the {QUESTION_CHARS:,} characters that a person is shown")
        said = await self._put(self._human, cause, subject, text, _BY_DEADLINE)
        if said.allowed:
            return Allow()
        denial = f"a person denied it: {said.text or 'no reason given'}"
        return Deny(denial if said.by == "human" else said.text)

    async def _put(self, human: Human, cause: Cause, subject: str, text: str, unanswered: Said) -> Said:
        text = text[:QUESTION_CHARS].encode("utf-8", "replace").decode()
        if (known := self._talk.inquiry.answers.get((cause, text))) is not None:
            return known
        question = Question(
            question_id=secrets.token_hex(8),
            kind=unanswered.kind,
            cause=cause,
            subject=subject,
            text=text,
            unanswered=unanswered,
        )
        await self._record(
            "asked",
            step=self._talk.step,
            question_id=question.question_id,
            kind=question.kind,
            cause=cause,
            subject=subject,
            text=text,
            unanswered=unanswered.text,
            deadline_seconds=self._request.deadline_seconds,
        )
        asked = await human.answer(question)
        await record_answer(asked, self._talk.step, self._record)
        return asked.answer or unanswered


def told(asked: Asked) -> str:
    """A question and its answer, for an attempt that knows of neither."""
    question, answer = asked.question, asked.answer or asked.question.unanswered
    if question.kind == "question":
        return f"Before, you asked: {question.text}\n{_said(answer)}"
    return f"Before, a person was asked: {question.text}\nIt was {'allowed' if answer.allowed else 'denied'}."


def _said(answer: Said) -> str:
    return f"A person answers: {answer.text}" if answer.by == "human" else answer.text


async def record_answer(asked: Asked, step: int, record: Callable[..., Awaitable[object]]) -> None:
    """The event of an answer, written by the attempt that goes on with it."""
    question, answer = asked.question, asked.answer or asked.question.unanswered
    await record(
        "answered",
        step=step,
        question_id=question.question_id,
        cause=question.cause,
        subject=question.subject,
        question=question.text,
        text=answer.text,
        allowed=answer.allowed,
        by=answer.by,
        seconds=asked.waited_seconds,
    )
