"""Runs of other harnesses, with the labels of ../shared/data/README.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zubble_worker.journal import categorise
from zubble_worker.observers.actions.facts import Call, End, Signal, StepFacts
from zubble_worker.observers.actions.watch import Watch

Row = tuple[str, str, str, str, End]
"""Tool, arguments, reply, output, end."""


def watched(rows: Iterator[Row]) -> list[Signal]:
    """Every signal; where a log has no fingerprints, each successful edit makes another tree."""
    watch, tree, found = Watch(), 0, []
    for number, (tool, arguments, text, output, end) in enumerate(rows, 1):
        call = Call(arguments, f"tree {tree}", tool)
        verdict = watch.before(call)
        ran = verdict.kind == "allow"
        facts = StepFacts(
            number, end=end if ran else "refused", call=call, text=text, output=output if ran else ""
        )
        found += watch.after(facts, verdict).signals
        edits = tool == "edit" or arguments.startswith(("edit ", "create "))
        tree += ran and end == "ok" and (edits or categorise(arguments) == "fix_attempt")
    return found


def at(found: list[Signal], *measures: str) -> list[tuple[int, str]]:
    return [(signal.step, signal.detector) for signal in found if signal.measure in measures]


def echoes(folder: Path) -> Iterator[Row]:
    log = folder / "degenerate" / "agent_asylum_case001_calls.jsonl"
    for line in log.read_text(encoding="utf-8").splitlines():
        command = json.loads(line)["args"]["command"]
        yield "shell", command, command, command.removeprefix("echo ").strip('"'), "ok"


def swe_agent(folder: Path, name: str) -> Iterator[Row]:
    run = json.loads((folder / "trajectories" / f"{name}.traj.json").read_text(encoding="utf-8"))
    for step in run["trajectory"]:
        text = step["observation"]
        failed = "Traceback" in text or "syntax error" in text or "cannot open" in text
        yield "shell", step["action"], step["response"], text, "failed" if failed else "ok"


def openhands(folder: Path) -> Iterator[Row]:
    file = folder / "trajectories" / "openhands_ponyc-4588_max_iterations.json"
    call: dict[str, Any] | None = None
    for event in json.loads(file.read_text(encoding="utf-8"))["history"]:
        if event.get("action") in {"run", "read", "edit"}:
            call = event
        elif event.get("observation") and call is not None:
            yield _openhands_row(call, event)
            call = None


def _openhands_row(call: dict[str, Any], event: dict[str, Any]) -> Row:
    given, output = call["args"], event.get("content") or ""
    shell = call["action"] == "run"
    words = given["command"] if shell else json.dumps({k: v for k, v in given.items() if k != "thought"})
    code = event["extras"]["metadata"]["exit_code"] if shell else 0
    failed = code != 0 or output.startswith("ERROR")
    return "shell" if shell else call["action"], words, given["thought"], output, "failed" if failed else "ok"


def test_reworded_echoes_are_seen_long_before_the_first_identical_ones(shared_data: Path) -> None:
    found = watched(echoes(shared_data))

    assert at(found, "nudge")[0] == (6, "no-progress")
    assert at(found, "reset")[0] == (12, "no-progress")
    assert next(signal.step for signal in found if signal.detector == "tool-cycle") == 18


@pytest.mark.parametrize("name", ["swe_agent_marshmallow-1867", "swe_agent_pydicom-1458"])
def test_a_healthy_run_is_neither_refused_nor_reset(shared_data: Path, name: str) -> None:
    assert at(watched(swe_agent(shared_data, name)), "refuse", "reset") == []


def test_a_run_that_submits_four_times_and_then_finishes_is_not_stopped(shared_data: Path) -> None:
    found = watched(swe_agent(shared_data, "swe_agent_ctf_eps"))

    assert at(found, "refuse") == [(12, "tool-cycle"), (13, "tool-cycle")]
    assert at(found, "reset") == []


def test_a_run_that_used_up_its_budget_is_nudged_and_not_stopped(shared_data: Path) -> None:
    found = watched(openhands(shared_data))

    assert at(found, "refuse", "reset") == []
    assert "excessive-steps" in {signal.detector for signal in found}
