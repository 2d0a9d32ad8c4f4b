"""The demo behind script/demo: a real batch, end to end, and a check that every outcome is the expected one.

It uses the product's own commands, on the embedded server and local workers, in a folder that is removed
afterwards. With --endpoint a real model is asked instead, whose outcomes are whatever they are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from scenario import DEGENERATE, HUMANEVAL, humaneval, script, task_lines

BATCH: Final = "demo"
PRICE: Final = "3/15"
ZUBBLE: Final = (sys.executable, "-m", "zubble_queue.cli")
PROVES: Final = """\
What this proves: the whole way works here: dispatcher, Redis protocol, Celery workers, bubblewrap,
streaming over HTTP, budgets, the loop detectors, verification in a fresh sandbox, sealed results.
What it does not prove: that a model solves these tasks; the mock endpoint streams the reference solutions."""


@dataclass
class Result:
    """What became of the batch."""

    tasks: list[dict[str, Any]]
    batch: dict[str, Any]
    wall_seconds: float
    unexpected: dict[str, str] = field(default_factory=dict)
    """source_id to what was seen instead."""

    def summary(self) -> dict[str, Any]:
        return {
            "schema": "zubble.demo/1",
            "sealed": self.batch["states"].get("sealed", 0),
            "by_outcome": dict(Counter(task["outcome"] for task in self.tasks)),
            "spend_usd": self.batch["spend_usd"],
            "tokens_saved": self.batch["tokens_saved"],
            "wall_s": round(self.wall_seconds, 1),
            "phases": self.batch["phases"],
            "requeues": self.batch["requeues"],
            "unexpected": self.unexpected,
        }


def main() -> int:
    options = _options()
    with contextlib.ExitStack() as stack:
        folder = Path(options.home or stack.enter_context(tempfile.TemporaryDirectory(prefix="zubble-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "ZUBBLE_HOME": str(folder / "home")}
        files = [str(HUMANEVAL)]
        if options.endpoint:
            url = options.endpoint
        else:
            url = stack.enter_context(_mock_endpoint(folder, rotate=options.rotate, environment=environment))
            files.append(_degenerate_file(folder))
        started = time.monotonic()
        _submit(options, url, files, environment)
        result = Result(
            _zubble_lines(["batch", "export", BATCH, "--format", "jsonl"], environment),
            _zubble_json(["batch", "show", BATCH, "--json"], environment),
            time.monotonic() - started,
        )
    expected = {} if options.endpoint else _expected(options)
    seen = {task["source_id"]: task["outcome"] for task in result.tasks}
    result.unexpected = {
        name: seen.get(name, "missing") for name, outcome in expected.items() if seen.get(name) != outcome
    }
    _report(options, result)
    return 1 if result.unexpected or not result.tasks else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="ask a real OpenAI-compatible endpoint, as in http://127.0.0.1:8077/v1",
    )
    parser.add_argument("--model", default="demo", help="its model's name")
    parser.add_argument("--price", default=PRICE, help="USD per million tokens, INPUT/OUTPUT, or free")
    parser.add_argument("--api-key-env", metavar="NAME", help="the environment variable that holds the key")
    parser.add_argument("--limit", type=int, help="only the first so many HumanEval tasks")
    parser.add_argument(
        "--rotate", type=int, default=0, help="control: give each task the solution of the N-th after it"
    )
    parser.add_argument("--workers", type=int, default=2, help="local worker processes")
    parser.add_argument("--slots", type=int, default=4, help="attempts at a time in each")
    parser.add_argument("--home", help="keep everything in this folder")
    return parser.parse_args()


@contextlib.contextmanager
def _mock_endpoint(folder: Path, *, rotate: int, environment: dict[str, str]) -> Iterator[str]:
    """The scripted endpoint as a process of its own; its URL."""
    path = folder / "script.json"
    path.write_text(json.dumps(script(rotate=rotate)))
    command = [*ZUBBLE, "mock-endpoint", "--script", str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def _degenerate_file(folder: Path) -> str:
    path = folder / "degenerate.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in task_lines()))
    return str(path)


def _submit(options: argparse.Namespace, url: str, files: list[str], environment: dict[str, str]) -> None:
    command = ["batch", "submit", *files, "--batch", BATCH, "--model", options.model, "--wait"]
    command += ["--endpoint", url, "--price", options.price]
    command += ["--workers", str(options.workers), "--slots", str(options.slots)]
    if options.limit:
        command += ["--limit", str(options.limit)]
    if options.api_key_env:
        command += ["--api-key-env", options.api_key_env]
    shown = " ".join(["zubble", *command])
    print(shown, file=sys.stderr)
    code = subprocess.run([*ZUBBLE, *command], stdout=sys.stderr, env=environment, check=False).returncode
    if code not in {0, 1}:
        raise SystemExit(code)


def _zubble_lines(command: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _zubble(command, environment).split("\n") if line]


def _zubble_json(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_zubble(command, environment))
    return answer


def _zubble(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(
        [*ZUBBLE, *command], stdout=subprocess.PIPE, env=environment, text=True, check=True
    ).stdout


def _expected(options: argparse.Namespace) -> dict[str, str]:
    """Outcome by source_id."""
    verdict = "failed" if options.rotate else "verified"
    tasks = humaneval()[: options.limit]
    return {task["task_id"]: verdict for task in tasks} | {case.name: case.outcome for case in DEGENERATE}


def _report(options: argparse.Namespace, result: Result) -> None:
    summary = result.summary()
    console = Console(stderr=options.json)
    table = Table("outcome", "tasks", title=f"{summary['sealed']} sealed")
    for outcome, count in sorted(summary["by_outcome"].items(), key=lambda item: -item[1]):
        table.add_row(outcome, str(count))
    console.print(table)
    for task in result.tasks:
        if not options.endpoint and not task["source_id"].startswith("HumanEval/"):
            console.print(f"  {task['source_id']:16} {task['outcome']}", highlight=False)
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in summary["phases"].items())
    console.print(
        f"Spent ${summary['spend_usd']:.4f}; {summary['tokens_saved']} tokens saved by cutting loops."
    )
    console.print(f"Wall {summary['wall_s']} s; over all tasks: {phases}.")
    if not options.endpoint:
        console.print(PROVES, style="dim")
    for name, outcome in result.unexpected.items():
        console.print(f"Not as expected: {name} ended {outcome}", style="bold red")
    if options.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    raise SystemExit(main())
