"""Finding Harbor's tasks in a folder: the folder itself, its sub-folders, or those a dataset.toml names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zubble_queue.errors import BadInput
from zubble_queue.formats import folders
from zubble_queue.formats.folders import Unfit

CONFIG: Final = "task.toml"
DATASET: Final = "dataset.toml"
TEXT_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Task:
    """A task's folder, with its task.toml as far as it can be read."""

    folder: Path
    values: Mapping[str, Any] | None
    problem: str = ""

    @property
    def name(self) -> str:
        task = (self.values or {}).get("task")
        name = task.get("name") if isinstance(task, dict) else None
        return name if isinstance(name, str) and name else self.folder.name


def is_folder(path: Path) -> bool:
    """Whether a folder looks like tasks of Harbor. Raises BadInput when it cannot be read."""
    return folders.is_there(path, CONFIG) or folders.is_there(path, DATASET) or bool(_subfolders(path))


def find(path: Path) -> list[Task]:
    """Raises BadInput when there is none, or the folder or its dataset.toml cannot be read."""
    if folders.is_there(path, CONFIG):
        return [_opened(path.resolve())]
    found = [_opened(folder) for folder in _subfolders(path)]
    if folders.is_there(path, DATASET):
        return _listed(path, found)
    if not found:
        raise BadInput([f"{path} holds no task: neither {CONFIG} nor folders with one."])
    return found


def _subfolders(path: Path) -> list[Path]:
    try:
        entries = sorted(path.iterdir())
    except OSError as unreadable:
        raise BadInput([f"{path} cannot be read: {unreadable.strerror}."]) from unreadable
    return [entry for entry in entries if entry.is_dir() and folders.is_there(entry, CONFIG)]


def _opened(folder: Path) -> Task:
    if folder.is_symlink():
        return Task(folder, None, "is a link; give the folder itself.")
    try:
        return Task(folder, _toml(folder, CONFIG))
    except Unfit as unfit:
        return Task(folder, None, str(unfit))


def _toml(folder: Path, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(folders.read_text(folder, name, max_bytes=TEXT_BYTES))
    except (tomllib.TOMLDecodeError, RecursionError) as broken:
        raise Unfit(name, f"is not valid TOML: {broken}") from broken


def _listed(path: Path, found: Sequence[Task]) -> list[Task]:
    """The tasks that dataset.toml names, in its order; digests are of published packages and not compared."""
    try:
        names = [str(entry["name"]) for entry in _toml(path, DATASET).get("tasks", ())]
    except Unfit as unfit:
        raise BadInput([f"{path.name}: {unfit}"]) from unfit
    except (KeyError, TypeError):
        raise BadInput([f"{path.name}: {DATASET}: every entry of [[tasks]] needs a name."]) from None
    by_name = {task.name: task for task in found}
    if missing := [name for name in names if name not in by_name]:
        raise BadInput(
            f"{path.name}: {DATASET}: there is no folder of the task {name!r}." for name in missing
        )
    if not names:
        raise BadInput([f"{path.name}: {DATASET} names no task."])
    return [by_name[name] for name in names]
