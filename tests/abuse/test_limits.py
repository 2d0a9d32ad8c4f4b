"""Attacks 17, 18 and 22 against the limits of a sandbox as a whole: many processes together."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB, Command, holds
from zubble_sandbox.records import Records, runtime_dir

MEMORY = 96 * MIB
SMALL = {"memory_bytes": MEMORY, "work_bytes": 16 * MIB, "tmp_bytes": 4 * MIB}
SPREAD = """
import os, sys, time
children = []
for _ in range(20):
    child = os.fork()
    if not child:
        kept = bytearray(16 << 20)
        time.sleep(20)
        os._exit(0)
    children.append(child)
killed = [os.waitpid(child, 0)[1] for child in children]
sys.exit(128 + 9 if 9 in killed else 0)
"""
SPIN = """
import json, os, time
begin = time.monotonic()
for _ in range(8):
    if not os.fork():
        while time.monotonic() < begin + 2:
            pass
        os._exit(0)
for _ in range(8):
    os.wait()
print(json.dumps([sum(os.times()[2:4]), time.monotonic() - begin]))
"""


def own_memory() -> int:
    """Resident bytes of this process, which is the worker here."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def python(code: str, **options) -> Command:
    return Command(("python3", "-I", "-S", "-c", code), **{"timeout_seconds": 60.0, **options})


@pytest.fixture(scope="module")
def strength(provider):
    return asyncio.run(provider.probe()).strength


@pytest.fixture(autouse=True)
def limited(strength):
    if not holds(strength, "limits"):
        pytest.skip("there are no control groups here: limits hold for each process only")


async def test_a_memory_bomb_is_killed_and_called_by_its_name(open_box):
    bomb, neighbour = await open_box(**SMALL), await open_box(**SMALL)
    before = own_memory()
    result = await bomb.exec(python("kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))"))
    assert (result.signal, result.oom, result.timed_out) == (9, True, False)
    assert own_memory() - before < 32 * MIB, "the worker stays as it was"
    assert await neighbour.out("echo on") == "on\n"
    result = await bomb.exec(python(f"kept = bytearray({MEMORY // 2})\nprint(len(kept))"))
    assert (result.stdout, result.oom) == (b"%d\n" % (MEMORY // 2), False), "control: half of it can be had"


async def test_a_memory_bomb_of_twenty_processes_is_killed_as_one(open_box):
    """None of them is large; each limit of a process holds."""
    bomb = await open_box(**SMALL, pids=64)
    before = own_memory()
    result = await bomb.exec(python(SPREAD))
    assert (result.exit_code, result.oom) == (137, True), result
    assert own_memory() - before < 32 * MIB
    assert await bomb.out("echo on") == "on\n"


async def test_whoever_is_killed_without_need_of_memory_is_not_called_so(open_box):
    box = await open_box(**SMALL)
    result = await box.sh("kill -9 $$")
    assert (result.signal, result.oom) == (9, False)
    result = await box.sh("exit 137")
    assert (result.exit_code, result.oom) == (137, False)


async def test_full_file_systems_leave_the_processes_their_memory(open_box):
    box = await open_box(**SMALL)
    await box.sh("for place in /work /tmp /dev/shm; do head -c 100000000 /dev/zero >$place/fill; done")
    result = await box.exec(python(f"print(len(bytearray({MEMORY // 2})))"))
    assert result.stdout == b"%d\n" % (MEMORY // 2)


async def test_eight_busy_processes_share_the_processor_time_of_one_sandbox(open_box):
    tenth, free = await open_box(cpus=0.1), await open_box()
    used, elapsed = json.loads((await tenth.exec(python(SPIN))).stdout)
    share = used / elapsed
    assert 0.03 < share < 0.2
    used, elapsed = json.loads((await free.exec(python(SPIN))).stdout)
    assert used / elapsed > 1.4 * share, "control: without the limit they get more"


@pytest.mark.bubblewrap
async def test_no_control_group_is_left(open_box, host, provider):
    box = await open_box()
    (record,) = [record for record in Records(runtime_dir()) if record.name == box.spec.name]
    folders = [Path(folder) for folder in record.groups]
    assert all(str(box.supervisor) in (folder / "cgroup.procs").read_text().split() for folder in folders)
    await box.destroy()
    assert not any(folder.exists() for folder in folders)


@pytest.mark.bubblewrap
async def test_a_dead_workers_control_groups_are_reaped(host, provider, tmp_path):
    records = Records(tmp_path / "records")
    worker = await host.start_worker(
        "run_for_ever.py", str(tmp_path / "records"), stdout=asyncio.subprocess.PIPE
    )
    await worker.stdout.readline()
    (record,) = records
    folders = [Path(folder) for folder in record.groups]
    assert folders
    assert all(folder.exists() for folder in folders)
    worker.kill()
    await worker.wait()
    reaper = type(provider)(folder=tmp_path / "records")
    await host.wait_until(lambda: not host.marked(record.token), "everybody in them is gone")
    await reaper.reap()
    assert not any(folder.exists() for folder in folders)
