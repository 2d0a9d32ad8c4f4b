"""Attacks 17, 19, 21, 23: using up what there is."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB, Command

from .sizes import EMPTY_FILES, FILL_MIB


def memory_file_bytes() -> int:
    """All tmpfs and shared memory of the host."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Shmem:")).split()[1])


async def test_a_fork_bomb_is_bounded_and_a_neighbour_works_on(open_box, host):
    code = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    bomb, neighbour = await open_box(pids=48), await open_box()
    supervisor = bomb.supervisor  # to look for it later would wait for every process that forks
    exploding = asyncio.create_task(
        bomb.exec(Command(("python3", "-I", "-S", "-c", code), timeout_seconds=6.0))
    )
    seen = []
    while not exploding.done():
        assert await neighbour.out("echo on") == "on\n"
        seen.append(1 + len(host.descendants(supervisor)))
    assert (await exploding).timed_out
    assert 40 < max(seen) <= 48, "control: the bomb went off"
    assert len(bomb.processes) == 1
    assert await bomb.out("echo on") == "on\n"


@pytest.mark.parametrize(
    ("place", "capacity"), [("/work", 32 * MIB), ("/tmp", 8 * MIB), ("/dev/shm", 8 * MIB)]
)
async def test_each_writable_place_is_full_at_its_size(box, place, capacity):
    free_on_disk = shutil.disk_usage("/").free
    result = await box.sh(
        f"for i in 1 2 3 4 5 6 7 8; do head -c {FILL_MIB * MIB} /dev/zero >{place}/fill$i; done; "
        f"du -sb {place} | cut -f1"
    )
    assert b"No space" in result.stderr or b"too large" in result.stderr
    assert capacity // 2 < int(result.stdout) <= capacity + MIB, "control: it could be filled up to its size"
    assert free_on_disk - shutil.disk_usage("/").free < 200 * MIB
    assert await box.out(f"rm -f {place}/fill*; echo x >{place}/x; cat {place}/x") == "x\n"


@pytest.mark.parametrize("place", ["/", "/dev", "/etc", "/verify", "/usr", "/proc", "/dev/pts"])
async def test_every_other_place_takes_nothing(box, place):
    result = await box.sh(f"head -c 1000000 /dev/zero >{place}/fill || mkdir {place}/fill")
    assert result.exit_code != 0


async def test_what_was_filled_is_free_after_destroying(open_box, host):
    box = await open_box(work_bytes=256 * MIB)
    empty = memory_file_bytes()
    await box.sh("head -c 250000000 /dev/zero >fill")
    full = memory_file_bytes()
    assert full - empty > 150 * MIB, "control: it takes the host's memory while it is there"
    await box.destroy()
    await host.wait_until(lambda: full - memory_file_bytes() > 150 * MIB, "the memory is free again")


async def test_a_sparse_file_is_refused_by_its_size(open_box):
    box = await open_box(work_bytes=64 * MIB)
    assert (await box.sh("truncate -s 1T sparse")).exit_code != 0, "the file size limit holds"
    await box.out("truncate -s 60M sparse")
    with pytest.raises(ValueError, match="larger"):
        await box.read("sparse", max_bytes=MIB)
    with pytest.raises(ValueError, match="larger"):
        await box.snapshot(max_bytes=8 * MIB)
    assert len(await box.read("sparse", max_bytes=64 * MIB)) == 60 * MIB, "control"


async def test_descriptors_run_out_inside_only(box):
    found = await box.python("""
import json
opened = []
result = "ok"
while result == "ok":
    result, fd = tried(os.open, "/dev/null", os.O_RDONLY)
    opened.append(fd)
print(json.dumps([result, len(opened)]))
""")
    assert found[0] == "EMFILE"
    assert found[1] <= 1_024
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    for fd in descriptors:
        os.close(fd)
    assert await box.out("echo on") == "on\n"


async def test_inotify_and_epoll_run_out_inside_only(box):
    found = await box.python("""
import json, select
epolls = []
try:
    while True:
        epolls.append(select.epoll())
except OSError as error:
    result = errno.errorcode[error.errno]
watches = [_libc.inotify_init() for _ in range(10)]
print(json.dumps([result, watches]))
""")
    assert found == ["EMFILE", [-1] * 10]


MAKE_FILES = f"""
import os
try:
    for n in range({EMPTY_FILES}):
        os.close(os.open(f"/work/{{n}}", os.O_WRONLY | os.O_CREAT))
except OSError as error:
    print(error.strerror)
print(len(os.listdir("/work")))
"""


@pytest.mark.timeout(600)
async def test_many_empty_files_are_destroyed_in_time(open_box, host):
    """Where their number is not bounded, they use up the memory of the sandbox, and of nobody else."""
    box, neighbour = await open_box(), await open_box()
    making = Command(("python3", "-I", "-S", "-c", MAKE_FILES), timeout_seconds=300.0)
    result = await box.exec(making)
    assert await neighbour.out("echo on") == "on\n"
    if not result.oom:
        *why, made = result.stdout.split(b"\n")[:-1]
        assert int(made) == EMPTY_FILES or (why == [b"No space left on device"] and int(made) > 5_000), (
            "control"
        )
        assert len(await box.list(limit=100)) == 100
        with pytest.raises(ValueError, match="larger"):
            await box.snapshot(max_bytes=MIB)
    token = box.token
    await box.destroy()
    assert host.marked(token) == []
