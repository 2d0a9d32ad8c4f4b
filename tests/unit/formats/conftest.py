"""A check and a work tree in folders of their own, and the HumanEval tasks."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

HUMANEVAL = Path(__file__).parents[3] / "examples" / "humaneval" / "HumanEval.jsonl.gz"
CHECK = resources.files("zubble_queue.formats").joinpath("function_check.py").read_text("utf-8")

ADD = {
    "prompt": 'def add(a, b):\n    """The sum of a and b."""\n',
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(-1, 1) == 0\n",
}


@pytest.fixture(scope="session")
def humaneval_file() -> Path:
    return HUMANEVAL


@pytest.fixture(scope="session")
def humaneval_tasks() -> list[dict[str, Any]]:
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the check of a task over a solution, as the verify sandbox would; no sandbox is needed for it."""
    verify, work = tmp_path / "verify", tmp_path / "work"
    verify.mkdir()
    work.mkdir()
    (verify / "check.py").write_text(CHECK)

    def run(
        solution: str | None, task: dict[str, Any] = ADD, files: dict[str, str] | None = None, **limits: float
    ) -> subprocess.CompletedProcess[str]:
        fields = {name: task[name] for name in ("prompt", "entry_point", "test")}
        (verify / "task.json").write_text(
            json.dumps({"cpu_seconds": 10, "wall_seconds": 60, **fields, **limits})
        )
        for name, content in ({} if solution is None else {"solution.py": solution}).items() | (
            files or {}
        ).items():
            (work / name).write_text(content)
        return subprocess.run(
            [sys.executable, "-I", "-S", str(verify / "check.py")],
            cwd=work,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(work), "VERIFY": str(verify)},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return run
