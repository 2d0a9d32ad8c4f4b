"""What `zubble task patch|files|report` do: hand out what an agent changed, and what it says of that."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.report import Exit, Report, plain
from zubble_queue.errors import BadInput

if TYPE_CHECKING:
    from zubble_queue.contracts.record import TaskView
    from zubble_queue.settings import Settings

_EMPTY_TAR: Final = bytes(tarfile.RECORDSIZE)


async def patch(
    settings: Settings, task: str, batch: str | None, output: Path | None, report: Report
) -> Exit:
    return await _text(settings, task, batch, output, report, name="patch")


async def post_mortem(
    settings: Settings, task: str, batch: str | None, output: Path | None, report: Report
) -> Exit:
    return await _text(settings, task, batch, output, report, name="report")


async def _text(
    settings: Settings, task: str, batch: str | None, output: Path | None, report: Report, *, name: str
) -> Exit:
    """Print or write one artifact that is text."""
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        data = await _kept(place, view, name)
    if output is not None:
        _write(output, data)
        report.say(f"{len(data)} bytes are in {output}.")
    elif data:
        report.say(plain(data.decode("utf-8", "replace"), lines=True).rstrip("\n"))
    else:
        report.note(_nothing(view) if name == "patch" else f"Task {view.task_id} left no report.")
    report.result(
        {
            "task_id": view.task_id,
            "bytes": len(data),
            "file": None if output is None else str(output),
            name: data.decode("utf-8", "replace"),
        }
    )
    return Exit.DONE


async def files(
    settings: Settings, task: str, batch: str | None, output: Path | None, report: Report, *, whole: bool
) -> Exit:
    async with installation(settings) as place:
        view = await place.store.find(task, batch)
        data = await _kept(place, view, "work_tree" if whole else "changed_files")
    found = _members(data)
    if found:
        report.table(("FILE", "BYTES", "MODE"), ((one.name, one.size, f"{one.mode:o}") for one in found))
    else:
        report.note(_nothing(view))
    if output is not None:
        _write(output, data or _EMPTY_TAR)
        report.say(f"They are in {output}.")
    report.result(
        {
            "task_id": view.task_id,
            "file": None if output is None else str(output),
            "files": [
                {"path": one.name, "bytes": one.size, "executable": bool(one.mode & 0o100)} for one in found
            ],
        }
    )
    return Exit.DONE


async def _kept(place: Installation, view: TaskView, name: str) -> bytes:
    """An artifact of the sealed task; empty where its agent changed nothing. Raises BadInput, InfraError."""
    if view.ending is None:
        raise BadInput([f"Task {view.task_id} is {view.state.value}: what it changes is kept when it ends."])
    ref = view.ending.artifacts.get(name)
    return b"" if ref is None else await place.artifacts.aget(ref)


def _nothing(view: TaskView) -> str:
    """Why there is nothing to hand out: what nobody was there to compare was saved as a whole."""
    artifacts = view.ending.artifacts if view.ending else {}
    if "work_tree" in artifacts and "trajectory" not in artifacts:
        return f"Only the whole work tree was saved: zubble task files {view.task_id} --whole -o FILE.tar"
    return f"Task {view.task_id} left no new or different file."


def _members(data: bytes) -> list[tarfile.TarInfo]:
    if not data:
        return []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return archive.getmembers()


def _write(output: Path, data: bytes) -> None:
    try:
        output.write_bytes(data)
    except OSError as refused:
        raise BadInput([f"{output} cannot be written: {refused.strerror}."]) from refused
