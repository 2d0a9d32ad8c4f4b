"""A person at the terminal answers the questions of a run (C47)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from zubble_queue.cli.report import Report, plain
from zubble_queue.contracts.question import (
    ANSWER_CHARS,
    MOST_KEEP_SECONDS,
    Answer,
    Asked,
    AskRequest,
    Question,
)
from zubble_queue.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.submission import Parcel
    from zubble_queue.stores.redis import RedisStore

AT_THE_TERMINAL: Final = AskRequest(human=True, caps=True, keep_seconds=MOST_KEEP_SECONDS)
"""Somebody is there: caps ask, and slot and sandbox wait for the answer."""
_LOOK_SECONDS: Final = 0.3
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_READ_BYTES: Final = 65_536


class Lines:
    """Lines of a file descriptor, waited for without a thread that nobody could end."""

    def __init__(self, fd: int) -> None:
        self._fd, self._rest = fd, b""
        self._whole: deque[str] = deque()

    async def next(self) -> str | None:
        """The next line, without its end; None where no more will come."""
        while not self._whole:
            await self._readable()
            data = os.read(self._fd, _READ_BYTES)
            *whole, self._rest = (self._rest + data).split(b"\n")
            if not data and not self._rest:
                return None
            if not data:
                whole, self._rest = [self._rest], b""
            self._whole += (line.decode("utf-8", "replace").strip() for line in whole)
        return self._whole.popleft()

    async def _readable(self) -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._fd, readable.set)
        except PermissionError:  # a regular file always is
            return
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._fd)


def is_attended(said: bool | None) -> bool:
    """Whether somebody is there to be asked: as was said, else where input and output are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty() if said is None else said


@asynccontextmanager
async def answers(store: RedisStore, parcel: Parcel, report: Report, *, wanted: bool) -> AsyncIterator[None]:
    """Where wanted, whoever sits at the terminal answers the questions of the task inside."""
    if not wanted:
        yield
        return
    lines = Lines(sys.stdin.fileno())
    answering = asyncio.create_task(answer_questions(store, parcel.envelope.task_id, report, lines))
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


async def answer_questions(store: RedisStore, task_id: str, report: Report, lines: Lines) -> None:
    """Put each question of the task to whoever sits at the terminal; until cancelled.

    A question may be answered elsewhere meanwhile (`zubble task answer`). Once the input has ended, every
    question has the answer for that case.
    """
    heard = ""
    while True:
        try:
            asked = await store.asked(task_id)
        except UnknownName:  # it is not submitted yet
            asked = None
        if asked and asked.answer is None and asked.question.question_id != heard:
            heard = asked.question.question_id
            await _put(store, task_id, asked, report, lines)
        await asyncio.sleep(_LOOK_SECONDS)


async def _put(store: RedisStore, task_id: str, asked: Asked, report: Report, lines: Lines) -> None:
    question = asked.question
    report.note("")
    for line in question.text.split("\n"):
        report.note(f"? {plain(line)}")
    report.note("Your answer:" if question.kind == "question" else "Allow it? y, or n and a reason:")
    typing = asyncio.ensure_future(_answer(question, report, lines))
    elsewhere = asyncio.ensure_future(_closed(store, task_id, question.question_id))
    try:
        await asyncio.wait({typing, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
        if not typing.done():
            report.note("It was answered elsewhere.")
            return
        await store.answer(task_id, typing.result(), question_id=question.question_id)
    except BadInput as too_late:
        report.note(str(too_late))
    finally:
        for task in (typing, elsewhere):
            task.cancel()
        await asyncio.gather(typing, elsewhere, return_exceptions=True)


async def _answer(question: Question, report: Report, lines: Lines) -> Answer:
    while (line := await lines.next()) is not None:
        if answer := understood(question, line):
            return answer
        report.note("Please answer." if question.kind == "question" else "Please say y, or n and a reason.")
    return question.unanswered.model_copy(update={"by": "nobody"})


def understood(question: Question, line: str) -> Answer | None:
    """What a typed line says; None where it says nothing."""
    if question.kind == "question":
        return Answer(text=line[:ANSWER_CHARS]) if line else None
    word, _, reason = line.partition(" ")
    if word.lower().rstrip(",:") in _YES:
        return Answer.approved()
    return Answer.denied(reason.strip()[:ANSWER_CHARS]) if word.lower().rstrip(",:") in _NO else None


async def _closed(store: RedisStore, task_id: str, question_id: str) -> None:
    """Return once the question is not open any more."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        view = await store.task(task_id)
        asked = view.asked
        if view.state.value != "awaiting_human" or not asked or asked.question.question_id != question_id:
            return
