r"""Task files of our own: JSON lines, one task a line (docs/how-to/task-file.md).

{"id": "sum-1", "description": "Write sum.sh that adds its two arguments.",
 "verify": {"command": "sh /verify/check.sh", "files": {"check.sh": "test $(sh sum.sh 2 3) = 5\n"}},
 "files": {"README": "Arguments are whole numbers.\n"}, "budget": {"max_iterations": 10}}
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from zubble_queue.contracts.submission import Parcel, TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats.lines import Problems, objects
from zubble_queue.formats.task_line import Builder, TaskLine


def read(path: Path, defaults: TaskDefaults) -> list[Parcel]:
    """All tasks of the file.

    Raises:
        BadInput: Every problem of every line, with its number; nothing is made of a file that has one.
    """
    problems = Problems(path)
    builder = Builder(defaults, problems)
    parcels: list[Parcel] = []
    for number, value in objects(path, problems):
        try:
            task = TaskLine.model_validate(value)
        except ValidationError as invalid:
            problems.add_invalid(number, invalid)
        else:
            parcels += builder.add(number, task)
    problems.raise_any()
    if not parcels:
        raise BadInput([f"{path} holds no task."])
    return parcels
