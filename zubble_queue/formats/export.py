"""Writers of results: one line or row per sealed task, in the order of submission."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.ending import Ending, Verdict
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import TaskView
from zubble_queue.errors import InfraError, UnknownName
from zubble_queue.formats import humaneval
from zubble_queue.stores.redis import RedisStore

SOLUTION_BYTES: Final = 1_048_576
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet run a cell."""

Count = Callable[[int], object]
"""Told how many have been written."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sealed task."""

    view: TaskView
    ending: Ending
    envelope: TaskEnvelope
    artifacts: ArtifactStore


class Line(Protocol):
    """Makes the text of a row, line end included; `head` comes before the first."""

    head: str
    missing: int
    """Artifacts that a row names and that were not to be had."""

    async def __call__(self, row: Row) -> str: ...


async def rows(store: RedisStore, artifacts: ArtifactStore, batch: str) -> AsyncIterator[Row]:
    """The sealed tasks of a batch. Raises UnknownName."""
    async for view in store.tasks(batch):
        if view.ending is not None:
            yield Row(view, view.ending, await store.envelope(view.task_id), artifacts)


def line(form: str, *, others: Iterable[str] = ()) -> Line:
    """The lines of a format. Raises UnknownName, which lists the formats of others too."""
    lines: dict[str, type[Line]] = {
        "jsonl": JsonLine,
        "csv": CsvLine,
        "humaneval": HumanEvalLine,
        "patches": PatchLine,
    }
    if form not in lines:
        raise UnknownName("export format", form, (*lines, *others))
    return lines[form]()


async def write(source: AsyncIterator[Row], make: Line, target: Path | None, count: Count) -> int:
    """Write all rows and return how many.

    Args:
        source: From `rows`.
        make: From `line`.
        target: The file, which appears whole or not at all, or a pipe or device; None is standard output.
        count: Called after each row.

    Raises:
        OSError: The file cannot be written; no space left included.
    """
    written = 0
    with _opened(target) as file:
        file.write(make.head)
        async for row in source:
            file.write(await make(row))
            written += 1
            count(written)
    return written


@contextmanager
def _opened(target: Path | None) -> Iterator[TextIO]:
    if target is None:
        yield sys.stdout
        return
    if target.exists() and not target.is_file():  # a pipe or a device
        with target.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            yield file
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


class JsonLine:
    """The task's ids, its TaskOutput (B3) and its ending."""

    head = ""
    missing = 0

    async def __call__(self, row: Row) -> str:
        values = {
            "batch": row.view.batch,
            "source_id": row.view.source_id,
            "repeat": row.view.repeat,
            "model": row.view.model,
            "outcome": row.ending.outcome,
            "attempts": row.view.attempt,
            "output": row.ending.output(row.envelope.task).model_dump(mode="json"),
            "ending": row.ending.model_dump(mode="json"),
        }
        return json.dumps(values) + "\n"


class CsvLine:
    """One row a task, for spreadsheets; no cell of it is a formula."""

    missing = 0

    def __init__(self) -> None:
        self.head = _csv(_COLUMNS)

    async def __call__(self, row: Row) -> str:
        return _csv([_cell(read(row)) for read in _COLUMNS.values()])


_COLUMNS: Final[dict[str, Callable[[Row], Any]]] = {
    "batch": lambda row: row.view.batch,
    "source_id": lambda row: row.view.source_id,
    "repeat": lambda row: row.view.repeat,
    "task_id": lambda row: row.view.task_id,
    "model": lambda row: row.view.model,
    "outcome": lambda row: row.ending.outcome,
    "stop": lambda row: row.ending.stop.value,
    "verdict": lambda row: row.ending.verdict.value,
    "reward": lambda row: _reward(row.ending),
    "iterations_used": lambda row: row.ending.iterations_used,
    "attempts": lambda row: row.view.attempt,
    "calls": lambda row: row.ending.usage.calls,
    "tokens": lambda row: row.ending.usage.tokens,
    "tokens_saved": lambda row: row.ending.tokens_saved,
    "spend_usd": lambda row: row.ending.spend_usd,
    "wallclock_seconds": lambda row: round(row.ending.seconds.get("wallclock", 0.0), 3),
    "files_touched": lambda row: len(row.ending.files_touched),
    "lines_added": lambda row: row.ending.lines_added,
    "lines_removed": lambda row: row.ending.lines_removed,
    "reason": lambda row: row.ending.reason,
}


def _reward(ending: Ending) -> Any:
    """A number, the numbers by name as JSON, or nothing."""
    return json.dumps(dict(ending.reward)) if isinstance(ending.reward, Mapping) else ending.reward


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _csv(cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


class _FromArtifacts:
    """A line that needs what only the artifact store has."""

    head = ""

    def __init__(self) -> None:
        self.missing = 0

    async def _kept(self, row: Row, ref: str | None) -> bytes:
        """An artifact's content; one that is gone costs its own row something, not the export."""
        if ref is None:
            return b""
        try:
            return await row.artifacts.aget(ref)
        except InfraError:
            self.missing += 1
            return b""


class HumanEvalLine(_FromArtifacts):
    """A sample as human-eval writes it: {task_id, completion, passed, result}."""

    async def __call__(self, row: Row) -> str:
        values = {
            "task_id": row.view.source_id,
            "completion": await self._completion(row),
            "passed": row.ending.verdict is Verdict.PASSED,
            "result": await self._result(row),
        }
        return json.dumps(values) + "\n"

    async def _completion(self, row: Row) -> str:
        """What the file adds to the prompt; one that begins otherwise redefines the function."""
        solution = _file_in(await self._kept(row, row.ending.artifacts.get("work_tree")), humaneval.SOLUTION)
        tasks = [entry.blob.ref for entry in row.envelope.verify.files if entry.path == humaneval.TASK_FILE]
        task = await self._kept(row, tasks[0]) if tasks else b""
        return solution.removeprefix(str(json.loads(task or b"{}").get("prompt", "")))

    async def _result(self, row: Row) -> str:
        """`passed`, or what the check said last, or the outcome."""
        if row.ending.verdict is Verdict.PASSED:
            return "passed"
        trajectory = await self._kept(row, row.ending.artifacts.get("trajectory"))
        return _last_words(trajectory) or f"failed: {row.ending.outcome}"


class PatchLine(_FromArtifacts):
    """A prediction as SWE-bench takes it: {instance_id, model_name_or_path, model_patch}."""

    async def __call__(self, row: Row) -> str:
        patch = await self._kept(row, row.ending.artifacts.get("patch"))
        values = {
            "instance_id": row.view.source_id,
            "model_name_or_path": row.view.model,
            "model_patch": diffs(patch).decode("utf-8", "replace"),
        }
        return json.dumps(values) + "\n"


def diffs(patch: bytes) -> bytes:
    """Without the lines before it that name what it cannot hold."""
    found = re.search(rb"^diff --git ", patch, re.MULTILINE)
    return patch[found.start() :] if found else b""


def _file_in(tree: bytes, name: str) -> str:
    """A text file of a work tree's tar; empty where it is not there, not a file, or too large."""
    if not tree:
        return ""
    with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
        for member in archive:
            if member.name.removeprefix("./") == name and member.isreg() and member.size <= SOLUTION_BYTES:
                file = archive.extractfile(member)
                return file.read().decode("utf-8", "replace") if file else ""
    return ""


def _last_words(trajectory: bytes) -> str:
    """The last line the check printed at its last run."""
    for text in reversed(trajectory.split(b"\n")):
        if b'"verify_finished"' in text:
            output = json.loads(text).get("data", {}).get("output", "")
            lines = output.strip().splitlines() if isinstance(output, str) else []
            return str(lines[-1]) if lines else ""
    return ""
