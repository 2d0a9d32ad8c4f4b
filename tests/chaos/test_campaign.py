"""The short form of the campaign, whole: in CI at its full size, elsewhere with fewer tasks and faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import ROOT

LEASE_SECONDS = 6


@pytest.mark.timeout(600)
def test_a_campaign_loses_nothing_repeats_nothing_and_pays_nothing_off_the_books(full_sizes, tmp_path):
    whole = full_sizes or os.environ.get("CI")
    tasks, faults = ("200", "20") if whole else ("60", "6")
    command = [sys.executable, "-m", "benchmarks.chaos", "--tasks", tasks, "--faults", faults]
    command += ["--lease", str(LEASE_SECONDS), "--seed", "1", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.stdout, ran.stderr[-3_000:]
    found = json.loads(ran.stdout)

    promised = {
        "lost": 0,
        "sealed_twice": 0,
        "overlapping_leases": 0,
        "stale_writes": 0,
        "spend_difference_usd": 0,
        "books_wrong": 0,
        "created_again": 0,
        "counters_agree": True,
    }
    assert {name: found[name] for name in promised} == promised, ran.stderr[-3_000:]
    assert found["faults"] + sum(found["skipped"].values()) == int(faults)
    assert found["faults"] >= int(faults) * 0.8
    assert sum(found["outcomes"].values()) == int(tasks)
    assert ran.returncode == 0
