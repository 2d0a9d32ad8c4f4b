"""The limit of open files fits the slots; each case in a process of its own, which cannot take it back."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from zubble_worker.limits import make_room_for_files
soft, hard, slots, egress = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(make_room_for_files(slots, egress=bool(egress)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "slots", "egress", "then", "warned"),
    [
        (64, 2_000, 100, False, 1_056, False),
        (1_500, 2_000, 100, False, 1_500, False),
        (64, 500, 100, False, 500, True),
        (64, 2_000, 10, True, 986, False),
    ],
)
def test_the_soft_limit_is_raised_to_what_the_slots_need(soft, hard, slots, egress, then, warned):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, slots, int(egress)))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    *log, said = done.stdout.splitlines()
    assert said == f"{then} {then}"
    assert any("100 slots may need 1056 open files; the limit is 500" in line for line in log) == warned
