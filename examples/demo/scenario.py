"""What the demo's model answers, and what must become of each task."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HUMANEVAL: Final = Path(__file__).parent.parent / "humaneval" / "HumanEval.jsonl.gz"
STALL_SECONDS: Final = 20
"""Budget of the task whose stream falls silent."""


@dataclass(frozen=True)
class Degenerate:
    """A task whose model misbehaves, and the outcome that must follow."""

    name: str
    outcome: str
    rule: dict[str, Any]
    budget: dict[str, Any]


def action(**fields: Any) -> str:
    """One turn of the structured protocol."""
    return json.dumps(fields)


PLAN: Final = action(action="plan", steps=["do it", "submit it"])

DEGENERATE: Final = (
    Degenerate(
        "word-loop", "loop:text", {"turns": [PLAN, {"text": [{"repeat": "truncated ", "times": 7303}]}]}, {}
    ),
    Degenerate(
        "sentence-loop",
        "loop:text",
        {
            "turns": [
                PLAN,
                {
                    "text": [
                        "I will think about it. ",
                        {
                            "repeat": "Wait, the file that I need must be in the folder that I have "
                            "already looked at twice before. ",
                            "times": 400,
                        },
                    ]
                },
            ]
        },
        {},
    ),
    Degenerate(
        "newline-loop", "loop:text", {"turns": [PLAN, {"text": [{"repeat": "\n", "times": 9000}]}]}, {}
    ),
    Degenerate(
        "command-cycle",
        "loop:action",
        {
            "turns": [
                action(action="run", command="ls -la", reasoning="look"),
                action(action="run", command="cat notes.txt", reasoning="look again"),
            ],
            "then": "cycle",
        },
        {"max_iterations": 20},
    ),
    Degenerate(
        "malformed-json",
        "parse_error",
        {"turns": ['{"action": "run", "command": "ls', "Sure! I will list them."]},
        {},
    ),
    Degenerate(
        "stalled-stream",
        "limit:wallclock",
        {"turns": [{"text": PLAN, "fault": {"kind": "stall", "after_tokens": 5}}]},
        {"max_wallclock_seconds": STALL_SECONDS},
    ),
)


def humaneval() -> list[dict[str, Any]]:
    """The 164 tasks, as they are."""
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def script(*, rotate: int = 0) -> dict[str, Any]:
    """The mock endpoint's script: reference solutions (rotated by some tasks, for the control), loops."""
    tasks = humaneval()
    rules = [_solution_rule(task, tasks[(number + rotate) % len(tasks)]) for number, task in enumerate(tasks)]
    rules += [
        {"name": case.name, "when": {"contains": f"demo task {case.name}."}, **case.rule}
        for case in DEGENERATE
    ]
    return {"rules": rules}


def _solution_rule(task: dict[str, Any], solved: dict[str, Any]) -> dict[str, Any]:
    """Answers for one task: plan, write the solution, submit it, and give up when it is not accepted."""
    write = (
        f"cat > /work/solution.py <<'SOLUTION'\n{solved['prompt']}{solved['canonical_solution']}\nSOLUTION"
    )
    return {
        "name": task["task_id"],
        "when": {"contains": f"({task['task_id']})"},
        "turns": [
            action(action="plan", steps=["write solution.py", "submit it"]),
            action(action="run", plan_step_id=1, command=write, reasoning="the whole function"),
            action(action="submit", report="solution.py is written"),
            action(action="report", report="it was not accepted"),
        ],
    }


def task_lines() -> list[dict[str, Any]]:
    """The degenerate tasks, in the task file's format."""
    return [
        {
            "id": case.name,
            "description": f"This is demo task {case.name}.",
            "success_criteria": "The file done.txt exists in the work tree.",
            "verify": {"command": "test -f /work/done.txt"},
            **({"budget": case.budget} if case.budget else {}),
        }
        for case in DEGENERATE
    ]
