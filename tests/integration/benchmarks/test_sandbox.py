"""The benchmark of sandboxes, at its smallest size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.sandbox", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)


def test_every_case_is_measured_beside_a_bare_spawn():
    done = _run("local", "--rounds", "2", "--execs", "2", "--json")
    measured = {(row["backend"], row["case"]): row for row in json.loads(done.stdout)["rows"]}
    cases = {("local", case) for case in ("open", "exec", "destroy", "warm open")}
    assert set(measured) == {("bare", "spawn"), *cases}
    assert measured["bare", "spawn"]["ratio"] == 1.0
    assert measured["local", "open"]["ratio"] > 1.0


@pytest.mark.slow
def test_docker_is_measured_beside_docker_exec(missing_part):
    done = _run("local", "--engine", "--rounds", "2", "--execs", "1", "--json")
    if done.returncode:
        missing_part(done.stderr.strip())
    measured = {(row["backend"], row["case"]): row["ratio"] for row in json.loads(done.stdout)["rows"]}
    assert measured["docker", "exec"] < measured["docker exec (API)", "exec"]
    assert {case for backend, case in measured if backend == "attached"} == {
        "open",
        "exec",
        "destroy",
        "warm open",
    }


def test_a_backend_that_is_not_installed_is_named_with_those_that_are():
    done = _run("podman")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no backend 'podman'" in done.stderr
    assert "bubblewrap" in done.stderr
