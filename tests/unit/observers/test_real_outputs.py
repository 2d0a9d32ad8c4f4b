"""The labels of ../shared/data/README.md."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from zubble_worker.observers.doom_loop import DoomLoop
from zubble_worker.observers.repetition import RepetitionDetector, StreamGuard, detect_file

LEGITIMATE = (
    "aider_polyglot_leaderboard.yml",
    "exercism_beer-song.txt",
    "exercism_twelve-days.txt",
    "gtest_output_golden.txt",
    "inspect_ai_image_base64.txt",
    "swe_agent_coding_challenge_output.log",
)
NOT_EXACT = ("COUNTER", "PARAPHRASE", "LONG", "varies")
"""Marks of rows that an exact short-period check cannot see."""


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def thresholds(text: str) -> list[int]:
    detector = RepetitionDetector()
    return [one.threshold for one in detector.feed("text", text) + detector.finish()]


def judged(calls: Iterable[str]) -> list[str]:
    """Verdicts on commands that leave the tree as it is."""
    doom_loop = DoomLoop()
    return [doom_loop.check(call, "unchanged").kind for call in calls]


def test_every_degenerate_sample_reaches_the_first_threshold_soon_after_its_loop_began(
    shared_data: Path,
) -> None:
    samples = rows(shared_data / "degenerate" / "gpt3_unconditional.jsonl")
    assert len(samples) == 7
    for sample in samples:
        detector = RepetitionDetector()
        first = (detector.feed("text", sample["text"]) + detector.finish())[0]
        assert first.token <= sample["loop_start_token"] + sample["period_tokens"] + 300, sample["id"]


def test_what_users_reported_is_cut_when_it_goes_on(shared_data: Path) -> None:
    reports = rows(shared_data / "degenerate" / "issue_excerpts.jsonl")
    exact = [
        row
        for row in reports
        if row["channel"] != "tool calls" and not any(mark in row["note"] for mark in NOT_EXACT)
    ]
    assert len(exact) == 7
    for row in exact:
        guard = StreamGuard()
        assert any(guard.feed("text", row["unit"]) for _ in range(15_900)), row["id"]


def test_the_log_of_echoes_reaches_the_first_threshold(shared_data: Path) -> None:
    assert detect_file(shared_data / "degenerate" / "agent_asylum_case001_echo_loop.md")["fired"]


@pytest.mark.parametrize("name", LEGITIMATE)
def test_a_legitimate_text_fires_nothing(shared_data: Path, name: str) -> None:
    assert detect_file(shared_data / "legit" / name)["fired"] == []


def test_the_log_of_equal_records_is_nudged_at_most(shared_data: Path) -> None:
    found = detect_file(shared_data / "legit" / "aider_sample_analytics.jsonl")["fired"]
    assert {fired["threshold"] for fired in found} == {50}


def test_echoes_that_succeed_are_refused_at_the_third_identical_one_and_then_stopped(
    shared_data: Path,
) -> None:
    calls = rows(shared_data / "degenerate" / "agent_asylum_case001_calls.jsonl")
    found = judged(json.dumps(call["args"]) for call in calls)
    assert found[:20] == ["allow"] * 17 + ["refuse", "refuse", "stop"]


def test_a_run_that_submits_four_times_and_then_finishes_is_not_stopped(shared_data: Path) -> None:
    run = json.loads(
        (shared_data / "trajectories" / "swe_agent_ctf_eps.traj.json").read_text(encoding="utf-8")
    )
    found = judged(step["action"] for step in run["trajectory"])
    assert found[-3:] == ["refuse", "refuse", "allow"]
    assert set(found[:-3]) == {"allow"}


@pytest.mark.parametrize("name", ["swe_agent_marshmallow-1867", "swe_agent_pydicom-1458"])
def test_a_healthy_run_is_let_through(shared_data: Path, name: str) -> None:
    run = json.loads((shared_data / "trajectories" / f"{name}.traj.json").read_text(encoding="utf-8"))
    assert set(judged(step["action"] for step in run["trajectory"])) == {"allow"}


def test_a_run_that_used_up_its_budget_is_no_doom_loop(shared_data: Path) -> None:
    file = shared_data / "trajectories" / "openhands_ponyc-4588_max_iterations.json"
    history = json.loads(file.read_text(encoding="utf-8"))["history"]
    calls = [json.dumps([event["action"], event["args"]]) for event in history if event.get("action")]
    assert set(judged(calls)) == {"allow"}
