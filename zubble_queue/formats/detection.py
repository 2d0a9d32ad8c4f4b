"""Which reader tasks need: a folder by what is in it, a file by its first object."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zubble_queue.errors import BadInput
from zubble_queue.formats import harbor_tasks
from zubble_queue.formats.lines import first_object

_HUMANEVAL_FIELDS: Final = frozenset({"task_id", "prompt", "entry_point", "test"})


def format_of(path: Path) -> str:
    """`harbor`, `humaneval` or `envelopes`. Raises BadInput when the file or folder cannot be read as any."""
    if path.is_dir():
        if harbor_tasks.is_folder(path):
            return "harbor"
        raise BadInput(
            [f"{path} is a folder without tasks: there is neither a task.toml nor folders with one."]
        )
    return "humaneval" if first_object(path).keys() >= _HUMANEVAL_FIELDS else "envelopes"
