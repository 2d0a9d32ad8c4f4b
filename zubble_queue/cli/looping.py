"""What `zubble loop` does: one run after the other over the same folder, each in a fresh context."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from zubble_queue import registry
from zubble_queue.cli import loop_views, running, views
from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.cli.loop_order import DONE, Order, parcel
from zubble_queue.cli.loop_record import Iteration, LoopFiles, LoopRecord
from zubble_queue.cli.report import Exit, Report
from zubble_queue.cli.tasks import events_of
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import BatchInfo, TaskState, TaskView
from zubble_queue.errors import UnknownName

_ENDS: Final = {"cancelled": "cancelled", "infra": "infra", "stuck": "infra", "invalid": "invalid"}
"""Outcomes of a run that end the loop, and its own."""
_NO_CHECK: Final = f"No --verify: {DONE} is accepted once {running.REPORT} is there; nothing judges the work."
_SHOWN: Final = frozenset({"action", "command_finished", "context_reset", "signal", "verify_finished"})


async def loop(order: Order, report: Report) -> Exit:
    """Raises OperatorError before anything is run, InfraError when the machinery fails again and again."""
    log_to_stderr(quiet=True)
    files = LoopFiles(order.work)
    record = _record(order, files, report)
    if record.outcome != "verified":
        going = _Loop(order, files, record, registry.load("service", "iterations"), report)
        await _go_on(order, files, going, report)
    for line in loop_views.lines(record, order):
        report.say(line)
    report.result(loop_views.values(record, order))
    return loop_views.code(record.outcome or "")


async def _go_on(order: Order, files: LoopFiles, going: _Loop, report: Report) -> None:
    """Nothing is made before all of it was seen to work."""
    envelope = parcel(order, going.record, files.journal()).envelope
    if order.verify is None:
        report.note(_NO_CHECK)
    settings = await running.narrowed(envelope, order.defaults, order.settings, order.endpoint)
    with files.held():
        if going.is_new:
            files.clear()
        try:
            async with installation(settings, start=True) as place:
                await going.run(place)
        except BaseException:
            report.note(f"What was done is kept. Go on with: {order.again}")
            raise


def _record(order: Order, files: LoopFiles, report: Report) -> LoopRecord:
    """Of the loop that is in the folder, or a new one. Raises BadInput."""
    found = None if order.anew else files.record()
    if found is None or found.goal != order.goal:
        if found is not None:
            report.note("Another task than before in this folder: its record and journal are cleared.")
        return LoopRecord(name=running.batch_name("loop"), goal=order.goal)
    if found.outcome == "stuck":  # whoever begins again has changed something
        found.fruitless = 0
    if found.outcome != "verified":
        report.note(f"Going on with loop {found.name} after {len(found.iterations)} iterations.")
        found.outcome = None
    return found


class _Loop:
    def __init__(
        self, order: Order, files: LoopFiles, record: LoopRecord, parts: Any, report: Report
    ) -> None:
        self._order, self._files, self.record, self._report = order, files, record, report
        self._parts = parts
        self._folder = parts.Folder(order.work)
        self._seen = parts.Seen.of(record.seen)

    @property
    def is_new(self) -> bool:
        return not self.record.iterations and self.record.running is None

    async def run(self, place: Installation) -> None:
        """Until something ends the loop; the record says what, and after each iteration how far it is."""
        await self._recover(place)
        while self.record.outcome is None:
            self.record.outcome = self._order.limits.reached(self.record) or await self._iterate(place)
        self._files.save(self.record)

    async def _recover(self, place: Installation) -> None:
        """What became of an iteration that was running when the last process ended."""
        if self.record.running is None:
            return
        try:
            view = await self._ended(place, self.record.running)
        except UnknownName:
            self.record.running = None
            return
        if not self._order.attached:
            self._folder.read()
        outcome = await self._take_in(place, view)
        self.record.outcome = None if outcome == "cancelled" else outcome

    async def _ended(self, place: Installation, task_id: str) -> TaskView:
        """The sealed task; one that nobody works at is cancelled, as soon as its lease has run out."""
        while (view := await place.store.task(task_id)).state is not TaskState.SEALED:
            self._report.note("Waiting until nobody works at the iteration that was interrupted.")
            await place.store.cancel_task(task_id)
            left = (view.lease_until or 0.0) - time.time()
            await asyncio.sleep(min(max(left, 0.1), 5.0))
        return view

    async def _iterate(self, place: Installation) -> str | None:
        record, order = self.record, self._order
        number = len(record.iterations) + 1
        snapshot = None if order.attached else self._begin(number)
        given = parcel(order, record, self._files.journal(), snapshot)
        record.running = given.envelope.task_id
        self._files.save(record)
        of = f"{len(record.counted) + 1} of {order.limits.max_iterations}"
        self._report.note(f"Iteration {of}, task {given.envelope.task_id}")
        info = BatchInfo(
            name=record.name,
            model=given.envelope.model,
            source="zubble loop",
            max_spend_usd=order.limits.max_spend_usd,
            on_ceiling="seal",
        )
        return await self._take_in(place, await running.to_its_end(place, info, given, self._hear))

    def _begin(self, number: int) -> bytes:
        """The folder as the next iteration finds it."""
        if self._order.verify is None:
            self._files.put_away(self._order.work / running.REPORT, number - 1)
        snapshot: bytes = self._folder.read()
        self._seen.add(self._folder.tree, self._order.plan, [])
        return snapshot

    def _hear(self, event: Event) -> None:
        if event.type in _SHOWN:
            self._report.note(views.event_line(event))

    async def _take_in(self, place: Installation, view: TaskView) -> str | None:
        """What an iteration left and what that is worth; returns how the loop ended, if it has."""
        record, ending = self.record, view.ending or Ending(stop=Stop.INFRA)
        events = [event async for event in events_of(place, view, 0)]
        tried = await _trials(place, view, events)
        tree = await self._left(place, ending)
        progress = self._seen.add(tree, self._order.plan, tried)
        said = _last_report(events)
        complete = self._is_complete(ending, said)
        interrupted = ending.stop is Stop.CANCELLED
        if not interrupted:
            record.fruitless = 0 if progress or complete else record.fruitless + 1
        record.iterations.append(
            Iteration(
                number=view.repeat,
                task_id=view.task_id,
                outcome=ending.outcome,
                kind=self._parts.kind_of(tried, changed=bool(ending.files_touched)),
                progress=progress,
                report=ending.report or ending.reason,
                interrupted=interrupted,
                steps=ending.iterations_used,
                tokens=view.usage.tokens,
                spend_micro_usd=view.usage.spend_micro_usd,
                seconds=ending.seconds.get("wallclock", 0.0),
            )
        )
        record.running, record.seen = None, self._seen.state()
        self._files.add(tried)
        self._files.save(record)
        self._report.note(loop_views.iteration_line(record.iterations[-1]))
        return "verified" if complete else _end_of(ending)

    async def _left(self, place: Installation, ending: Ending) -> Any:
        """The work tree after an iteration, also in the folder, where that is what was worked on."""
        ref = ending.artifacts.get("work_tree")
        if ref is None:
            if ending.artifacts.get("changed_files"):
                self._report.note("The work tree is too large to be taken over; the folder stays as it was.")
            return self._folder.tree
        snapshot = await place.artifacts.aget(ref)
        return self._folder.look(snapshot) if self._order.attached else self._folder.take(snapshot)

    def _is_complete(self, ending: Ending, said: str) -> bool:
        """A claim counts only with the check, and where one was asked for, the check only with a claim."""
        signal = self._order.signal
        if ending.verdict is not Verdict.PASSED or signal is None:
            return ending.verdict is Verdict.PASSED
        return ending.stop is Stop.SUBMITTED and (signal == DONE or self._parts.claims(said, signal))


async def _trials(place: Installation, view: TaskView, events: list[Event]) -> list[JournalEntry]:
    """What was tried; where no trajectory was left to say it, as far as the store knows."""
    if view.ending is None or "trajectory" not in view.ending.artifacts:
        return await place.store.journal(view.task_id)
    return [
        JournalEntry.model_validate(event.data["journal"])
        for event in events
        if event.type == "command_finished"
    ]


def _last_report(events: list[Event]) -> str:
    """What was submitted last, in its own lines."""
    said = [event.data.get("report") for event in events if event.type == "action"]
    return next((str(text) for text in reversed(said) if text), "")


def _end_of(ending: Ending) -> str | None:
    """How the loop ends with a run that it cannot go on after; None where it can."""
    if ending.stop is Stop.BLOCKED:
        return "blocked"
    if ending.outcome in views.CEILINGS:
        return "limit:spend"
    return _ENDS.get(ending.outcome)
