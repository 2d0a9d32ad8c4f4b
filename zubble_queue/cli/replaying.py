"""What `zubble replay` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zubble_queue import registry
from zubble_queue.cli.report import Exit, Report, plain
from zubble_queue.errors import BadInput
from zubble_queue.trajectories.reading import read_file
from zubble_queue.trajectories.steps import Trajectory


def replay(files: Sequence[Path], report: Report) -> Exit:
    """One file is in memory at a time."""
    run = registry.load("service", "replay")
    found: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for path in files:
        try:
            trajectories = read_file(path)
        except BadInput as unreadable:
            problems += unreadable.problems
            continue
        for line, trajectory in enumerate(trajectories, 1):
            part = {"line": line} if len(trajectories) > 1 else {}
            found.append({"path": str(path), **part, **_values(trajectory, run(trajectory))})
    for file in found:
        _say(file, report)
    for problem in problems:
        report.note(plain(problem))
    code = Exit.BAD_INPUT if problems else Exit.DONE
    report.result({"files": found, "exit_code": int(code), "problems": problems})
    return code


def _values(trajectory: Trajectory, firings: Sequence[Any]) -> dict[str, Any]:
    values = [firing.as_dict() for firing in firings]
    return {
        "format": trajectory.format,
        "steps": len(trajectory.steps),
        "fired": [firing for firing in values if firing["measure"] != "none"],
        "noted": [firing for firing in values if firing["measure"] == "none"],
    }


def _say(file: Mapping[str, Any], report: Report) -> None:
    times = len(file["fired"])
    what = "nothing fired" if not times else f"detectors fired {'once' if times == 1 else f'{times} times'}"
    where = f"{file['path']}:{file['line']}" if "line" in file else file["path"]
    report.say(f"{plain(where)}: {file['format']}, {file['steps']} steps, {what}")
    if file["fired"]:
        report.table(
            ("STEP", "DETECTOR", "MEASURE", "COUNT", "THRESHOLD"),
            (
                (
                    firing["step"],
                    firing["detector"],
                    firing["measure"],
                    f"{firing['count']:g}",
                    f"{firing['threshold']:g}",
                )
                for firing in file["fired"]
            ),
        )
