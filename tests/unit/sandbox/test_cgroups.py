"""Limits of many processes together, with the groups of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB
from zubble_sandbox import box, commands, groups
from zubble_sandbox.cgroups import Cgroups, Limits, NoLimits, Place
from zubble_sandbox.records import new_token


@pytest.fixture(scope="module")
def cgroups():
    try:
        return Cgroups.find()
    except NoLimits as reason:
        pytest.skip(f"no control groups: {reason}")


@pytest.fixture
def make(cgroups):
    made = []

    def make(**limits):
        group = cgroups.make(new_token(), Limits(**{"memory_bytes": 64 * MIB, "pids": 16, **limits}))
        made.append(group)
        return group

    yield make
    for group in made:
        groups.end(group.folders)


def start(group, code: str, **options) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-I", "-S", "-c", code]
    argv = commands.entered(str(box.binary()), program, groups=map(str, group.folders))
    return subprocess.Popen(argv, **options)


def test_memory_of_several_processes_is_added_up(make):
    group = make(memory_bytes=96 * MIB, pids=64)
    code = "import os, time\nfor n in range(5): os.fork()\nkept = bytearray(8 << 20)\ntime.sleep(60)"
    process = start(group, code)
    deadline = time.monotonic() + 30
    while not group.oom_kills():
        assert time.monotonic() < deadline, "32 processes of 8 MiB each stay below 96 MiB"
        time.sleep(0.01)
    assert groups.end(group.folders)
    process.wait()


def test_what_stays_below_the_limit_is_left_alone(make):
    group = make()
    assert start(group, "bytearray(16 << 20)").wait() == 0
    assert group.oom_kills() == 0


def test_processor_time_is_a_share_of_the_clock(make, cgroups):
    if cgroups.cpu is None:
        pytest.skip("processor time cannot be limited here")
    code = (
        "import time; begin = time.monotonic()\nwhile time.monotonic() < begin + 1.5: pass\n"
        "print(time.process_time())"
    )
    quarter = start(make(cpus=0.25), code, stdout=subprocess.PIPE)
    used = float(quarter.communicate()[0])
    assert 0.1 < used / 1.5 < 0.4


def test_nobody_and_nothing_is_left_of_a_group_that_was_ended(make):
    group = make()
    code = (
        "import os, time\n"
        "if not os.fork():\n    os.setsid()\n    time.sleep(600)\n"
        "print('here', flush=True)\ntime.sleep(600)"
    )
    with start(group, code, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert groups.end(group.folders)
    assert process.returncode == -9
    assert not any(folder.exists() for folder in group.folders)
    assert not groups.end(group.folders), "there is nobody to kill any more"


def test_a_group_is_ended_without_the_kernels_own_switch(make, cgroups):
    """As where there is no version 2: one by one, and none forks away."""
    group = make(pids=32)
    folders = [folder for folder in group.folders if not (folder / "cgroup.kill").exists()]
    if not folders:
        pytest.skip("every group of this machine has the switch")
    forks = "import os\nprint('here', flush=True)\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    process = start(group, forks, stdout=subprocess.PIPE)
    process.stdout.readline()
    assert groups.end(folders)
    process.stdout.close()
    assert process.wait() == -9


def test_a_group_whose_limits_are_refused_is_not_left_behind(cgroups):
    token = new_token()
    with pytest.raises(OSError):
        cgroups.make(token, Limits(memory_bytes=64 * MIB, pids=-5))
    assert not (cgroups.memory.folder / token).exists()


def test_processor_time_that_cannot_be_limited_is_refused(cgroups):
    without = Cgroups(memory=cgroups.memory, pids=cgroups.pids, cpu=None, kill=None)
    with pytest.raises(OSError, match="processor time"):
        without.make(new_token(), Limits(64 * MIB, 16, cpus=1.0))


def test_where_the_processor_cannot_be_shared_out_memory_and_processes_are_limited_still(cgroups, tmp_path):
    """As for a real-time process, which no group of the processor takes."""
    broken = Cgroups(cgroups.memory, cgroups.pids, Place(1, frozenset({"cpu"}), tmp_path), cgroups.kill)
    with pytest.raises(OSError):
        broken.try_out()
    working = broken.tried_out()
    assert working == Cgroups(cgroups.memory, cgroups.pids, None, cgroups.kill)


@pytest.mark.parametrize(
    ("program", "reason"),
    [("print(3)", "memory is not limited"), ("print(16)", "processes are not limited"), ("!", "SyntaxError")],
)
def test_limits_that_did_not_stop_the_trial_are_not_believed(cgroups, monkeypatch, program, reason):
    monkeypatch.setattr("zubble_sandbox.cgroups._TRIAL", program)
    with pytest.raises(NoLimits, match=reason):
        cgroups.try_out()


def test_empty_groups_that_were_left_are_swept_and_others_are_not(make, cgroups, monkeypatch):
    left, used = make(), make()
    process = start(used, "import time; print('here', flush=True); time.sleep(60)", stdout=subprocess.PIPE)
    process.stdout.readline()
    cgroups.sweep()
    assert all(folder.exists() for folder in left.folders), "they are not old"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1_000)
    monkeypatch.setattr(Path, "glob", lambda _, pattern: iter((*left.folders, *used.folders)))
    cgroups.sweep()
    assert not any(folder.exists() for folder in left.folders)
    assert all(folder.exists() for folder in used.folders)
    groups.end(used.folders)
    process.communicate()


def test_a_group_that_is_not_there_is_named():
    with pytest.raises(NoLimits, match="nonesuch"):
        Cgroups.find("nonesuch")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_without_a_group_of_their_own_has_no_limits():
    code = (
        "import os, sys; sys.executable = '/usr/bin/python3'\n"
        "from zubble_sandbox.cgroups import Cgroups, NoLimits\n"
        "os.setgid(61_999); os.setuid(61_999)\n"
        "try: Cgroups.find()\n"
        "except NoLimits as reason: print(reason)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.startswith("No control group holds here: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a group to somebody else")
def test_a_user_makes_groups_in_one_that_was_handed_over(cgroups):
    token = new_token()
    handed = [place.folder / token for place in {cgroups.memory, cgroups.pids}]
    code = (
        "import os, sys; sys.executable = '/usr/bin/python3'; from pathlib import Path\n"
        "from zubble_sandbox.cgroups import Cgroups\n"
        "for folder in sys.argv[1:]: (Path(folder) / 'cgroup.procs').write_text('0')\n"
        "os.setgid(61_999); os.setuid(61_999)\n"
        "found = Cgroups.find(); print(found.memory.folder, found.pids.folder)"
    )
    try:
        for folder in handed:
            folder.mkdir(exist_ok=True)
            for path in (folder, *folder.glob("cgroup.*")):
                os.chown(path, 61_999, 61_999)
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, handed)], capture_output=True, check=True, text=True
        )
    finally:
        groups.end([child for folder in handed for child in folder.iterdir() if child.is_dir()])
        groups.end(handed)
    assert set(done.stdout.split()) == set(map(str, handed))
