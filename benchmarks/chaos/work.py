"""The batch: short scripted agents whose work tree shows whether every step was done exactly once."""

from __future__ import annotations

import json
from typing import Any, Final

MODEL: Final = "mock"
BATCH: Final = "chaos"
SHAPES: Final = {"two": 2, "three": 3, "four": 4}
"""Commands of an agent, by the shape of its task."""
_SUBMIT: Final = {"action": "submit", "report": "every line is in log.txt"}
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
    """What the endpoint answers: plan, commands, submit; whoever takes a task up again is answered alike.

    Only an agent that was told that its last command may have run in part writes the lines anew.
    """
    return {
        "marker": r"chaos task (\S+)",
        "rules": [
            {
                "name": f"{shape}{name}",
                "when": {"matches": f"(?s)of shape {shape}[.]{told}"},
                "turns": _paced(replies),
            }
            for shape, commands in SHAPES.items()
            for name, told, replies in (
                (", anew", ".*may have run in part", _anew(commands)),
                ("", "", _replies(commands)),
            )
        ],
    }


def _replies(commands: int) -> list[dict[str, Any]]:
    steps = [f"append line {number}" for number in range(1, commands + 1)]
    runs = [
        {
            "action": "run",
            "command": f"echo line-{number} >> log.txt",
            "plan_step_id": number,
            "reasoning": step,
        }
        for number, step in enumerate(steps, start=1)
    ]
    return [{"action": "plan", "steps": [*steps, "submit"]}, *runs, _SUBMIT]


def _anew(commands: int) -> list[dict[str, Any]]:
    """The k-th reply leaves what k commands leave, whatever became of the one before."""
    runs = [
        {
            "action": "run",
            "command": "printf '" + "".join(f"line-{line}\\n" for line in range(1, last + 1)) + "' > log.txt",
            "reasoning": f"write lines 1 to {last} anew",
        }
        for last in (*range(1, commands + 1), commands)
    ]
    return [*_replies(commands)[:1], *runs, _SUBMIT]


def _paced(replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
