"""Writes the trajectories of sealed tasks, one file a task, named by its task id."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from zubble_queue import long_strings
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.event import Event
from zubble_queue.errors import InfraError, UnknownName
from zubble_queue.formats.export import Count, Row, diffs
from zubble_queue.trajectories import atif_writer, mini_writer
from zubble_queue.trajectories.branch import kept_branch
from zubble_queue.trajectories.run import fold
from zubble_queue.trajectories.sealed import SealedRun


def _events(sealed: SealedRun) -> str:
    return "".join(f"{json.dumps(event.model_dump())}\n" for event in sealed.events)


_FORMS: Final[dict[str, tuple[str, Callable[[SealedRun], str]]]] = {
    "atif": (".json", atif_writer.write),
    "events": (".jsonl", _events),
    "mini": (".traj.json", mini_writer.write),
}
FORMS: Final = tuple(_FORMS)


class Trajectories:
    """Files of one format in one folder.

    Args:
        folder: Made when the first task has a trajectory.
        form: One of FORMS. Raises UnknownName for another.
    """

    def __init__(self, folder: Path, form: str) -> None:
        if form not in _FORMS:
            raise UnknownName("trajectory format", form, FORMS)
        self._folder = folder
        self._suffix, self._text = _FORMS[form]
        self.written = 0
        self.without = 0
        """Tasks that were sealed before they ran."""
        self.missing = 0
        """Tasks whose trajectory is not to be had any more."""

    async def write(self, source: AsyncIterator[Row], count: Count) -> int:
        """Write each row's file, and return how many rows there were.

        Args:
            source: From `formats.export.rows`.
            count: Called after each row.

        Raises:
            OSError: A file cannot be written; no space left included. It is there whole or not at all.
        """
        rows = 0
        async for row in source:
            rows += 1
            if "trajectory" not in row.ending.artifacts:
                self.without += 1
            else:
                await self._write(row)
            count(rows)
        return rows

    async def _write(self, row: Row) -> None:
        try:
            sealed = await sealed_run(row)
        except InfraError:
            self.missing += 1
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{row.view.task_id}{self._suffix}"
        partial = self._folder / f".{name}.partial"
        try:
            partial.write_text(self._text(sealed), encoding="ascii")
            partial.replace(self._folder / name)
        finally:
            partial.unlink(missing_ok=True)
        self.written += 1


async def sealed_run(row: Row) -> SealedRun:
    """The run of a sealed task. Raises InfraError when its trajectory, or a part of it, is gone."""
    artifacts = row.artifacts
    lines = (await artifacts.aget(row.ending.artifacts["trajectory"])).split(b"\n")
    events = [
        await long_strings.whole(Event.model_validate_json(line), artifacts) for line in lines if line.strip()
    ]
    asked, patch = row.envelope.instructions, row.ending.artifacts.get("patch")
    return SealedRun(
        row.envelope,
        row.ending,
        tuple(events),
        fold(kept_branch(events)),
        asked if isinstance(asked, str) else await _text(row, asked),
        diffs(await artifacts.aget(patch)).decode("utf-8", "replace") if patch else "",
    )


async def _text(row: Row, blob: BlobRef) -> str:
    return (await row.artifacts.aget(blob)).decode("utf-8", "replace")
