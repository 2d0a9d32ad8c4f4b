"""Which reader a task file needs, judged by its first object."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zubble_queue.formats.lines import first_object

_HUMANEVAL_FIELDS: Final = frozenset({"task_id", "prompt", "entry_point", "test"})


def format_of(path: Path) -> str:
    """`humaneval` or `envelopes`. Raises BadInput when the file cannot be read."""
    return "humaneval" if first_object(path).keys() >= _HUMANEVAL_FIELDS else "envelopes"
