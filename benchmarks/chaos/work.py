"""The batch: short scripted agents whose work tree shows whether every step was done exactly once."""

from __future__ import annotations

import json
from typing import Any, Final

MODEL: Final = "mock"
BATCH: Final = "chaos"
SHAPES: Final = {"two": 2, "three": 3, "four": 4}
"""Commands of an agent, by the shape of its task."""
_DELAY_SECONDS: Final = 0.15
_TOKEN_SECONDS: Final = 0.012
_TOKENS_PER_EVENT: Final = 4


def task_lines(count: int) -> list[dict[str, Any]]:
    """So many tasks, in the task file's format."""
    return [_task_line(number) for number in range(count)]


def replies_of(line: dict[str, Any]) -> int:
    """The replies that make a whole run of a task: plan, commands, submit."""
    return SHAPES[shape_of(line)] + 2


def shape_of(line: dict[str, Any]) -> str:
    shape: str = line["description"].split()[-1].rstrip(".")
    return shape


def script() -> dict[str, Any]:
    """What the endpoint answers: plan, commands, submit; whoever takes a task up again is answered alike."""
    return {
        "marker": r"chaos task (\S+)",
        "rules": [
            {"name": shape, "when": {"contains": f"of shape {shape}."}, "turns": list(turns(commands))}
            for shape, commands in SHAPES.items()
        ],
    }


def turns(commands: int) -> list[dict[str, Any]]:
    """An agent's replies."""
    steps = [f"append line {number}" for number in range(1, commands + 1)]
    replies: list[dict[str, Any]] = [{"action": "plan", "steps": [*steps, "submit"]}]
    for number, step in enumerate(steps, start=1):
        command = f"echo line-{number} >> log.txt"
        replies.append({"action": "run", "command": command, "plan_step_id": number, "reasoning": step})
    replies.append({"action": "submit", "report": "every line is in log.txt"})
    return [
        {
            "text": json.dumps(reply),
            "delay_seconds": _DELAY_SECONDS,
            "token_seconds": _TOKEN_SECONDS,
            "tokens_per_event": _TOKENS_PER_EVENT,
        }
        for reply in replies
    ]


def _task_line(number: int) -> dict[str, Any]:
    shape = list(SHAPES)[number % len(SHAPES)]
    lines = "".join(f"line-{step}\\n" for step in range(1, SHAPES[shape] + 1))
    return {
        "id": f"c{number:05}",
        "description": f"This is chaos task c{number:05} of shape {shape}.",
        "success_criteria": "log.txt holds each line exactly once, in order.",
        "verify": {"command": f'test "$(cat log.txt)" = "$(printf \'{lines}\')"'},
    }
