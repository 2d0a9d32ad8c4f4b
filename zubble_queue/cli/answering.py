"""What `zubble task answer|approve|deny` do, and how questions are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zubble_queue.cli import clearing, views
from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report, plain
from zubble_queue.contracts.question import ANSWER_CHARS, Answer
from zubble_queue.errors import BadInput

if TYPE_CHECKING:
    from zubble_queue.contracts.record import TaskView
    from zubble_queue.settings import Settings


async def answer(settings: Settings, task: str, batch: str | None, text: str, report: Report) -> Exit:
    """Raises BadInput or UnknownName."""
    _check(text, "TEXT", least=1)
    return await _give(settings, task, batch, Answer(text=text), report)


async def decide(
    settings: Settings, task: str, batch: str | None, report: Report, *, allowed: bool, reason: str = ""
) -> Exit:
    """Raises BadInput or UnknownName."""
    _check(reason, "--reason")
    return await _give(settings, task, batch, Answer(text=reason, allowed=allowed), report)


async def _give(settings: Settings, task: str, batch: str | None, given: Answer, report: Report) -> Exit:
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        if given.allowed and view.outcome == "blocked":
            await clearing.clear(place, view)
            return _goes_on(await place.store.task(view.task_id), report)
        asked = view.asked.question.question_id if view.asked and view.asked.answer is None else ""
        await place.store.answer(view.task_id, given, question_id=asked)
        return _goes_on(await place.store.task(view.task_id), report)


def _goes_on(view: TaskView, report: Report) -> Exit:
    report.say(f"Task {view.task_id} goes on: it is {view.state.value}.")
    report.result(views.task_values(view))
    return Exit.DONE


def _check(text: str, name: str, *, least: int = 0) -> None:
    if not least <= len(text.strip()) or len(text) > ANSWER_CHARS:
        raise BadInput([f"{name} must have {least} to {ANSWER_CHARS:,} characters."])
    if text != text.encode("utf-8", "replace").decode():
        raise BadInput([f"{name} must be text in UTF-8."])


def lines(view: TaskView) -> Iterator[str]:
    """What a task waits for, and how to answer; nothing where it waits for nobody."""
    if view.asked is None or view.state.value != "awaiting_human":
        return
    question, by = view.asked.question, time.localtime(view.asked.answer_by)
    until = time.strftime("%Y-%m-%d %H:%M:%S", by)
    yield f"  {_ASKING[question.cause]} {plain(question.subject)}".rstrip() + f", until {until}:"
    yield from (f"    {plain(line)}" for line in question.text.split("\n"))
    if question.kind == "question":
        yield f"  answer with: zubble task answer {view.task_id} TEXT"
    else:
        yield f"  decide with: zubble task approve {view.task_id}, or zubble task deny {view.task_id}"


_ASKING: Final = {
    "agent": "its agent asks",
    "policy": "its policy asks about",
    "cap": "it met its cap",
    "guard": "it met its guard",
}
