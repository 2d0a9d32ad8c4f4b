"""What `zubble batch export` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report
from zubble_queue.cli.waiting import progress_bar
from zubble_queue.errors import BadInput
from zubble_queue.formats import export as writers
from zubble_queue.formats.edits import Folders
from zubble_queue.trajectories.exporting import FORMS, Trajectories

if TYPE_CHECKING:
    from zubble_queue.settings import Settings


async def export(
    settings: Settings,
    batch: str,
    form: str,
    output: Path | None,
    report: Report,
    *,
    edits: Path | None = None,
) -> Exit:
    if form in FORMS:
        return await _export_trajectories(settings, batch, form, output, report, edits=edits)
    line = writers.line(form, others=FORMS)
    folders = Folders(edits) if edits is not None else None
    if output is None and report.as_json:
        raise BadInput(["--json needs -o FILE: standard output is one JSON object."])
    async with installation(settings) as place:
        view = await place.store.batch(batch)
        with progress_bar("exporting") as progress:
            rows = writers.rows(place.store, place.artifacts, batch)
            if folders is not None:
                rows = folders.filled(rows)
            count = await writers.write(rows, line, output, lambda done: progress.update(done, view.sealed))
    left = view.total - count
    if left:
        report.note(f"{left} of {view.total} tasks are not sealed yet and were left out.")
    missing = line.missing + (folders.missing if folders else 0)
    if missing:
        report.note(f"{missing} artifacts are not to be had any more; what they would fill is empty.")
    if output is not None:
        report.say(f"{count} results are in {output}.")
    if folders is not None:
        report.note(f"What {folders.written} tasks changed is in {edits}.")
    report.result(
        {
            "batch": batch,
            "format": form,
            "file": str(output),
            "written": count,
            "not_sealed": left,
            "missing": missing,
            "edits": None if folders is None else {"folder": str(edits), "tasks": folders.written},
        }
    )
    return Exit.DONE


async def _export_trajectories(
    settings: Settings,
    batch: str,
    form: str,
    output: Path | None,
    report: Report,
    *,
    edits: Path | None,
) -> Exit:
    files = Trajectories(_folder(output, form, edits=edits), form)
    async with installation(settings) as place:
        view = await place.store.batch(batch)
        with progress_bar("exporting") as progress:
            rows = writers.rows(place.store, place.artifacts, batch)
            count = await files.write(rows, lambda done: progress.update(done, view.sealed))
    left = view.total - count
    if left:
        report.note(f"{left} of {view.total} tasks are not sealed yet and were left out.")
    if files.without:
        report.note(f"{files.without} tasks were sealed before they ran and have no trajectory.")
    if files.missing:
        report.note(f"{files.missing} trajectories are not to be had any more and were left out.")
    report.say(f"{files.written} trajectories are in {output}.")
    report.result(
        {
            "batch": batch,
            "format": form,
            "folder": str(output),
            "written": files.written,
            "not_sealed": left,
            "without": files.without,
            "missing": files.missing,
        }
    )
    return Exit.DONE


def _folder(output: Path | None, form: str, *, edits: Path | None) -> Path:
    if output is None:
        raise BadInput([f"--format {form} needs -o FOLDER: it writes one file for each task."])
    if output.exists() and not output.is_dir():
        raise BadInput([f"-o {output} is no folder: --format {form} writes one file for each task."])
    if edits is not None:
        raise BadInput(["--edits goes with jsonl, csv, humaneval and patches."])
    return output
