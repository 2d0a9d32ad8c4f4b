"""HumanEval's own file (openai/human-eval): JSON lines, plain or gzipped, read as they are.

The agent gets the prompt and has to write the whole function to solution.py. The tests stay with the check,
which runs the function in a process of its own (`function_check`). HumanEval/33 compares the function with
itself, so that any function of that name which returns a list passes it, here as with the original harness.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zubble_queue.contracts.submission import Parcel, TaskDefaults
from zubble_queue.errors import BadInput
from zubble_queue.formats.lines import Problems, objects
from zubble_queue.formats.task_line import Builder, FileLine, TaskLine, VerifyLine

TASK_TYPE: Final = "humaneval"
SOLUTION: Final = "solution.py"
TASK_FILE: Final = "task.json"
"""Beside the check: the prompt, the tests and the limits."""
VERIFY_COMMAND: Final = "exec python3 -I -S /verify/check.py"
"""`exec`: no shell stays beside the check that a candidate could get at."""
CPU_SECONDS: Final = 10
"""The original allows 3 s of wall time; ours counts the candidate's own CPU on a machine that is shared."""
WALL_SECONDS: Final = 30
VERIFY_SECONDS: Final = 60

_INSTRUCTIONS: Final = """\
Write the file /work/solution.py. It must contain the whole function `{entry_point}`, with its imports and \
with every helper it needs, so that it completes this beginning:

```python
{prompt}```

Keep the name and the parameters as they are. Hidden tests will call the function.
"""


class HumanEvalLine(BaseModel):
    """A line of the file; further fields, canonical_solution among them, are left alone."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    task_id: str = Field(min_length=1, max_length=400)
    prompt: str = Field(min_length=1)
    entry_point: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)
    test: str = Field(min_length=1)


def read(path: Path, defaults: TaskDefaults) -> list[Parcel]:
    """All tasks of the file.

    Raises:
        BadInput: Every problem of every line, with its number; nothing is made of a file that has one.
    """
    problems = Problems(path)
    builder = Builder(defaults, problems)
    check = resources.files("zubble_queue.formats").joinpath("function_check.py").read_text("utf-8")
    parcels: list[Parcel] = []
    for number, value in objects(path, problems):
        try:
            line = HumanEvalLine.model_validate(value)
        except ValidationError as invalid:
            problems.add_invalid(number, invalid)
        else:
            parcels += builder.add(number, _task(line, check))
    problems.raise_any()
    if not parcels:
        raise BadInput([f"{path} holds no task."])
    return parcels


def _task(line: HumanEvalLine, check: str) -> TaskLine:
    prompt = line.prompt if line.prompt.endswith("\n") else f"{line.prompt}\n"
    return TaskLine(
        id=line.task_id,
        description=f"Complete the Python function {line.entry_point} ({line.task_id[:200]}).",
        instructions=_INSTRUCTIONS.format(entry_point=line.entry_point, prompt=prompt),
        success_criteria=f"{SOLUTION} defines {line.entry_point} and it passes the hidden tests.",
        verify=VerifyLine(
            command=VERIFY_COMMAND,
            files={"check.py": FileLine(text=check), TASK_FILE: FileLine(text=_task_json(line))},
            timeout_seconds=VERIFY_SECONDS,
        ),
        task_type=TASK_TYPE,
    )


def _task_json(line: HumanEvalLine) -> str:
    return json.dumps(
        {
            "prompt": line.prompt,
            "entry_point": line.entry_point,
            "test": line.test,
            "cpu_seconds": CPU_SECONDS,
            "wall_seconds": WALL_SECONDS,
        }
    )
