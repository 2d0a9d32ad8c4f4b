"""What `zubble task ls|show|tail|cancel` do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from zubble_queue.cli import answering, needs, views
from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.report import Exit, Report, duration, plain, usd
from zubble_queue.cli.waiting import stopped_by_signals
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import PastRound, TaskState, TaskView
from zubble_queue.errors import UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.ending import Ending
    from zubble_queue.contracts.journal import JournalEntry
    from zubble_queue.settings import Settings

_POLL_SECONDS: Final = 0.3
_PAGE: Final = 1_000
_COMMANDS: Final = {"patch": "patch", "changed_files": "files", "report": "report"}
"""Which command hands out an artifact."""


async def ls(settings: Settings, batch: str, state: str | None, outcome: str | None, report: Report) -> Exit:
    wanted = _state(state)
    async with installation(settings) as place:
        found = [view async for view in place.store.tasks(batch, state=wanted, outcome=outcome)]
    report.table(
        ("TASK", "ID", "REPEAT", "STATE", "OUTCOME", "STEPS", "SPENT"),
        (
            (
                view.task_id,
                view.source_id,
                view.repeat,
                view.state.value,
                view.outcome or "",
                view.ending.iterations_used if view.ending else "",
                usd(view.usage.spend_micro_usd / MICRO),
            )
            for view in found
        ),
    )
    for view in found:
        if asking := list(answering.lines(view)):
            report.say(f"\n{view.task_id}")
            report.say("\n".join(asking))
    report.result({"batch": batch, "tasks": [views.task_values(view) for view in found]})
    return Exit.DONE


def _state(name: str | None) -> TaskState | None:
    try:
        return None if name is None else TaskState(name)
    except ValueError:
        raise UnknownName("state", name or "", TaskState) from None


async def show(settings: Settings, task: str, batch: str | None, report: Report) -> Exit:
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        worklog = await place.store.worklog(view.task_id)
        journal = await place.store.journal(view.task_id)
        rounds = await place.store.rounds(view.task_id)
        envelope = await place.store.envelope(view.task_id)
        waiting = {envelope.need.key: 1} if view.state is TaskState.QUEUED else {}
        unserved = needs.unserved(waiting, await place.store.workers())
    for line in (*task_lines(view, worklog, journal), *round_lines(rounds)):
        report.say(line)
    for line in needs.lines(unserved):
        report.say(f"  {line}")
    output = view.ending.output(envelope.task).model_dump(mode="json") if view.ending else None
    report.result(
        {
            **views.task_values(view),
            "output": output,
            "unserved": bool(unserved),
            "worklog": worklog,
            "rounds": [views.round_values(past) for past in rounds],
            "journal": [entry.model_dump(mode="json") for entry in journal],
            "envelope": envelope.model_dump(mode="json"),
        }
    )
    return Exit.DONE


def task_lines(view: TaskView, worklog: str, journal: list[JournalEntry]) -> Iterator[str]:
    yield f"Task {view.task_id} ({plain(view.source_id)}, repeat {view.repeat}) of batch {view.batch}"
    yield f"  {view.state.value}, model {plain(view.model)}, attempts {view.attempt}, worker {view.worker}"
    yield from answering.lines(view)
    if ending := view.ending:
        yield f"  {ending.outcome}: stop {ending.stop.value}, verdict {_verdict(ending)}"
        if ending.reason:
            yield f"  {plain(ending.reason)}"
        if ending.report:
            yield f"  the agent reports: {plain(ending.report)}"
        phases = ", ".join(f"{name} {duration(value)}" for name, value in sorted(ending.seconds.items()))
        yield f"  {ending.iterations_used} steps, {ending.usage.tokens} tokens, {usd(ending.spend_usd)}"
        yield f"  {phases}"
        yield from _evidence_lines(ending)
        yield from _artifact_lines(view, ending)
    if worklog:
        yield "\nWorklog entry"
        yield plain(worklog, lines=True)
    if journal:
        yield "\nTried"
    for entry in journal:
        code = "killed" if entry.exit_code is None else f"exit {entry.exit_code}"
        yield f"  {entry.step:3} {code:8} {plain(entry.command)[:100]} → {plain(entry.result_summary)[:80]}"


def _verdict(ending: Ending) -> str:
    """With its reward, where that says more."""
    verdict, reward = ending.verdict.value, ending.reward
    if isinstance(reward, Mapping):
        return f"{verdict}, reward {', '.join(f'{plain(name)} {value:g}' for name, value in reward.items())}"
    return verdict if reward in {None, 0.0, 1.0} else f"{verdict}, reward {reward:g}"


def _artifact_lines(view: TaskView, ending: Ending) -> Iterator[str]:
    for name, ref in ending.artifacts.items():
        command = _COMMANDS.get(name)
        yield f"  {plain(name)}: {ref}{f' (zubble task {command} {view.task_id})' if command else ''}"


def _evidence_lines(ending: Ending) -> Iterator[str]:
    """What a detector or the store saw; lost attempts, the evidence of a stuck task, one a line."""
    for name, value in ending.evidence.items():
        if name != "ends":
            yield f"  {plain(str(name))}: {plain(str(value))[:300]}"
    for end in ending.evidence.get("ends", ()):
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end["time"]))
        cause = plain(str(end["cause"]))[:200]
        yield f"  attempt {end['attempt']} ended {clock} on {plain(str(end['worker']))}: {cause}"


def round_lines(rounds: list[PastRound]) -> Iterator[str]:
    if rounds:
        yield "\nEarlier rounds"
    for past in rounds:
        spent, reason = usd(past.usage.spend_micro_usd / MICRO), plain(past.ending.reason)[:100]
        ended = f"{past.ending.outcome} after {past.attempts} attempts, {spent}"
        yield f"  {past.round:3} {ended} {reason}".rstrip()


async def tail(settings: Settings, task: str, batch: str | None, report: Report, *, follow: bool) -> Exit:
    events: list[Event] = []

    def hear(event: Event) -> None:
        events.append(event)
        report.say(views.event_line(event))

    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        with stopped_by_signals() as stop:
            view = await follow_task(place, view.task_id, hear, stop=stop, follow=follow)
    report.result(
        {
            "task_id": view.task_id,
            "state": view.state.value,
            "outcome": view.outcome,
            "events": [event.model_dump(mode="json") for event in events],
        }
    )
    return Exit.DETACHED if stop.is_set() else Exit.DONE


async def follow_task(
    place: Installation,
    task_id: str,
    hear: Callable[[Event], None],
    *,
    stop: asyncio.Event,
    follow: bool = True,
) -> TaskView:
    """Hand over every event of the task until it is sealed or `stop` is set; returns the last view of it.

    Where a checkpoint moved events from Redis to an artifact before we saw them, they are read from there.
    """
    seen = 0
    while True:
        view = await place.store.task(task_id)
        async for event in events_of(place, view, seen):
            hear(event)
            seen = event.seq
        if not follow or stop.is_set() or view.state is TaskState.SEALED:
            return view
        await _pause(stop)


async def events_of(place: Installation, view: TaskView, seen: int) -> AsyncIterator[Event]:
    """Those after `seen`: of a sealed task from its trajectory, else from its checkpoint, and from Redis."""
    trajectory = view.ending.artifacts.get("trajectory") if view.ending else None
    if trajectory is not None:
        for line in (await place.artifacts.aget(trajectory)).split(b"\n"):
            if line and (event := Event.model_validate_json(line)).seq > seen:
                seen = event.seq
                yield event
    while page := await place.store.events(view.task_id, after=seen, count=_PAGE):
        if page[0].seq > seen + 1:
            async for event in _moved(place, view.task_id, seen):
                if event.seq < page[0].seq:
                    yield event
        for event in page:
            yield event
        seen = page[-1].seq


async def _moved(place: Installation, task_id: str, seen: int) -> AsyncIterator[Event]:
    """The events after `seen` that a checkpoint moved to artifacts."""
    point = await place.store.latest_checkpoint(task_id)
    for segment in point.segments if point else ():
        for line in (await place.artifacts.aget(segment)).split(b"\n"):
            if line and (event := Event.model_validate_json(line)).seq > seen:
                yield event


async def _pause(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), _POLL_SECONDS)
    except TimeoutError:
        return


async def cancel(settings: Settings, task: str, batch: str | None, report: Report) -> Exit:
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        done = await place.store.cancel_task(view.task_id)
        view = await place.store.task(view.task_id)
    if not done:
        report.say(f"Task {view.task_id} was sealed before: {view.outcome}.")
    elif view.state is TaskState.SEALED:
        report.say(f"Task {view.task_id} is cancelled.")
    else:
        report.say(f"Task {view.task_id} runs; its worker will stop it.")
    report.result({**views.task_values(view), "cancelled": done})
    return Exit.DONE
