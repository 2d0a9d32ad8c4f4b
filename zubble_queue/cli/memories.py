"""What `zubble memory ls|show|forget` do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report, plain

if TYPE_CHECKING:
    from zubble_queue.contracts.memory import MemoryEntry
    from zubble_queue.settings import Settings


async def ls(settings: Settings, report: Report) -> Exit:
    async with installation(settings) as place:
        found = await place.store.memories()
    report.table(
        ("TYPE", "RUNS", "BYTES", "NEWEST"),
        ((view.task_type, view.entries, view.bytes, _moment(view.newest)) for view in found),
    )
    report.result({"memories": [view.model_dump(mode="json") for view in found]})
    return Exit.DONE


async def show(settings: Settings, task_type: str, report: Report) -> Exit:
    async with installation(settings) as place:
        entries = await place.store.memory(task_type)
    for entry in entries:
        _say(entry, report)
    report.result(
        {
            "task_type": task_type,
            "entries": [{"id": entry.entry_id, **entry.model_dump(mode="json")} for entry in entries],
        }
    )
    return Exit.DONE


async def forget(settings: Settings, task_type: str, task: str | None, report: Report) -> Exit:
    async with installation(settings) as place:
        gone = await place.store.forget(task_type, task)
    report.say(f"Forgot {gone} {'run' if gone == 1 else 'runs'} of task type {task_type}.")
    report.result({"task_type": task_type, "task": task, "forgotten": gone})
    return Exit.DONE


def _say(entry: MemoryEntry, report: Report) -> None:
    report.say(
        f"{_moment(entry.time)} {entry.entry_id} ({plain(entry.source_id)}) of batch {entry.batch}: "
        f"{entry.outcome}, model {plain(entry.model)}"
    )
    if entry.report:
        report.say(f"  the agent reports: {plain(entry.report)}")
    for trial in entry.trials:
        code = "killed" if trial.exit_code is None else f"exit {trial.exit_code}"
        report.say(f"  {code:8} {plain(trial.command)[:100]} → {plain(trial.result_summary)[:80]}")


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
