"""Starting processes, and finding what to start."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import spawner, tools


@pytest.fixture
def null():
    fd = os.open(os.devnull, os.O_RDWR)
    yield fd
    os.close(fd)


def launch(null, code, **options):
    return spawner.Launch((sys.executable, "-I", "-S", "-c", code), null, **options)


async def test_a_process_is_waited_for_without_blocking_the_loop(null):
    process = await spawner.start(launch(null, "import time; time.sleep(0.2); raise SystemExit(5)"))
    turns = 0
    waiting = asyncio.create_task(process.wait())
    while not waiting.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert await waiting == 5
    assert turns > 3
    assert not process.alive
    process.kill()
    process.close()
    process.close()


async def test_a_program_that_is_not_there_raises(null):
    with pytest.raises(FileNotFoundError):
        await spawner.start(spawner.Launch(("/no/such/program",), null))


async def test_the_environment_is_empty_and_the_session_its_own(tmp_path, null):
    seen = tmp_path / "seen"
    code = (
        f"import os; open({str(seen)!r}, 'w').write(f'{{dict(os.environ)}} {{os.getsid(0) == os.getpid()}}')"
    )
    process = await spawner.start(launch(null, code))
    await process.wait()
    process.close()
    assert seen.read_text().endswith(" True")
    assert "PATH" not in seen.read_text()


async def test_a_process_whose_caller_gave_up_does_not_live_on(tmp_path, null):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    starting = asyncio.create_task(spawner.start(launch(null, code)))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    again = await spawner.start(launch(null, ""))  # the same thread: the first one has been dealt with
    await again.wait()
    again.close()
    if (tmp_path / "pid").exists() and (pid := (tmp_path / "pid").read_text()):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_every_candidate_is_named_with_its_complaint(tmp_path):
    with pytest.raises(SandboxUnavailable, match=r"/no/bwrap.*; /bin/false"):
        tools.find(["/no/bwrap", "/bin/false"], None)


def test_without_any_candidate_the_package_is_named():
    with pytest.raises(SandboxUnavailable, match="install the package bubblewrap"):
        tools.find([], None)


@pytest.mark.parametrize("complaint", tools._ADVICE)
def test_a_known_complaint_comes_with_advice(complaint):
    assert tools._advised(f"bwrap: {complaint}", 1).endswith(tools._ADVICE[complaint])
    assert "3" in tools._advised("", 3)
