"""Attacks 32, 33, 60, 64, 70: sandboxes that cannot start, lose their worker, or are many."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import box, seccomp, spawner
from zubble_sandbox.bubblewrap import BubblewrapOptions, BubblewrapProvider
from zubble_sandbox.once import exec_once
from zubble_sandbox.records import Records, runtime_dir

from .sizes import AT_ONCE, SEQUENCE


@pytest.mark.bubblewrap
async def test_a_worker_killed_during_a_command_leaves_nothing(host, provider, tmp_path):
    folder = tmp_path / "records"
    worker = await host.start_worker("run_for_ever.py", str(folder), stdout=PIPE)
    token = json.loads(await worker.stdout.readline())["token"]
    assert len(host.marked(token)) >= 2, "control: it runs"
    daemons = [pid for pid in host.pids() if b"98761" in host.arguments(pid)]
    assert daemons, "control: so do its daemons"
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await host.wait_until(lambda: not host.marked(token), "the sandbox ended with its worker")
    await host.wait_until(
        lambda: not any(b"98761" in host.arguments(pid) for pid in daemons), "its daemons too"
    )
    again = BubblewrapProvider(folder=folder)
    assert await again.reap() == 0, "nothing was left to kill"
    assert list(Records(folder)) == []


@pytest.mark.bubblewrap
async def test_a_worker_killed_while_it_opens_leaves_nothing(host, provider, tmp_path):
    folder = tmp_path / "records"
    worker = await host.start_worker("die_while_opening.py", str(folder), "12", stdout=PIPE)
    stdout, _ = await worker.communicate()
    assert json.loads(stdout)["killed"] == 12
    left = list(Records(folder))
    sockets = {record.token for record in left} & ways_out()
    assert left, "control: some had begun"
    assert sockets, "control: some had a way out"
    await host.wait_until(lambda: not any(host.marked(record.token) for record in left), "all of them ended")
    assert await BubblewrapProvider(folder=folder).reap() == 0
    assert list(Records(folder)) == []
    assert sockets & ways_out() == set()


@pytest.mark.bubblewrap
async def test_a_sandbox_dies_with_its_worker_also_when_the_line_stays_open(host, provider, tmp_path):
    worker = await host.start_worker("hold_the_line.py", str(tmp_path / "records"), stdout=PIPE)
    found = json.loads(await worker.stdout.readline())
    try:
        assert host.marked(found["token"]), "control: it lives"
        worker.send_signal(signal.SIGKILL)
        await worker.wait()
        await host.wait_until(lambda: not host.marked(found["token"]), "the sandbox died with its worker")
        assert b"hold_the_line.py" in b" ".join(host.arguments(found["holder"])), "control: the line is held"
    finally:
        os.kill(found["holder"], signal.SIGKILL)


@pytest.mark.bubblewrap
async def test_a_sandbox_of_a_dead_worker_is_found_and_killed(host, provider, tmp_path):
    """Where neither its worker's death nor the closed line has ended it."""
    folder = tmp_path / "records"
    worker = await host.start_worker("leave_a_sandbox.py", str(folder), stdout=PIPE)
    found = json.loads(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    try:
        assert Path(f"/proc/{found['stray']}").exists()
        assert await BubblewrapProvider(folder=folder).reap(keep_owners=frozenset({"leaver"})) == 0
        assert host.marked(found["token"]) == [found["stray"]], "control: a kept owner's is left alone"
        assert await BubblewrapProvider(folder=folder).reap() == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found["stray"], signal.SIGKILL)
    assert host.marked(found["token"]) == []


DIE_WITH_PARENT = """
import ctypes, time
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
print(1, flush=True)
time.sleep(1000)
"""


async def test_a_process_outlives_the_thread_that_asked_for_it():
    """bwrap --die-with-parent follows the thread: started by a thread that ends, it would be killed."""
    started: list[spawner.Process] = []
    direct: list[subprocess.Popen[bytes]] = []

    def short_lived():
        read, write = os.pipe()
        launch = spawner.Launch((sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT), write)
        started.append(asyncio.run(spawner.start(launch)))
        direct.append(subprocess.Popen(launch.argv, stdout=write))
        os.close(write)
        said = b""
        while said.count(b"1") < 2:  # both have asked to die with the thread that started them
            said += os.read(read, 100)
        os.close(read)

    thread = threading.Thread(target=short_lived)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert await asyncio.to_thread(direct[0].wait) == -signal.SIGKILL, (
        "control: started by the thread itself it dies"
    )
    assert started[0].alive
    started[0].kill()
    assert await started[0].wait() == -signal.SIGKILL
    started[0].close()


async def test_a_sandbox_opened_in_a_short_lived_thread_lives_on(provider, host):
    tokens = []

    def open_and_forget():
        async def main():
            sandbox = await provider.open(host.spec(name=f"thread-{secrets.token_hex(4)}"))
            found = await sandbox.exec(shell("echo on"))
            tokens.append((sandbox, found.stdout))

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        tokens.append(loop)

    thread = threading.Thread(target=open_and_forget)
    thread.start()
    await asyncio.to_thread(thread.join)
    (sandbox, stdout), loop = tokens
    assert stdout == b"on\n"
    await asyncio.sleep(0.3)
    result = await asyncio.to_thread(loop.run_until_complete, sandbox.fingerprint())
    assert len(result) == 64, "it still answers"
    await asyncio.to_thread(loop.run_until_complete, sandbox.destroy())
    loop.close()


async def test_a_deadline_does_not_follow_the_wall_clock(box):
    result = await box.sh("date -s '2040-01-01' 2>&1; sleep 1000", timeout_seconds=0.3)
    assert result.timed_out
    assert result.seconds < 5.3


ENGINE_CONNECTIONS = 16
"""Kept at most, one for each request at the same time: fewer than there are sandboxes."""
FAKES = {
    "missing": None,
    "fails": "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n",
    "runs bare": '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
}


@pytest.mark.bubblewrap
@pytest.mark.parametrize("fake", ["missing", "fails"])
async def test_without_a_working_bwrap_nothing_runs(tmp_path, fake, provider):
    bwrap, canary = tmp_path / "bwrap", tmp_path / "canary"
    tmp_path.chmod(0o755)
    if FAKES[fake]:
        bwrap.write_text(FAKES[fake])
        bwrap.chmod(0o755)
    broken = BubblewrapProvider(BubblewrapOptions(bwrap_file=str(bwrap)), folder=tmp_path / "records")
    probe = await broken.probe()
    assert not probe.available
    assert not probe.isolated
    assert str(bwrap) in probe.problems[0]
    with pytest.raises(SandboxUnavailable):
        await exec_once(broken, ("touch", str(canary)), 5.0)
    assert not canary.exists()
    assert list(Records(tmp_path / "records")) == []
    assert (await exec_once(provider, ("true",), 5.0)).ok, "control"


@pytest.mark.bubblewrap
async def test_a_bwrap_that_isolates_nothing_is_not_used(tmp_path, provider):
    bwrap, canary = tmp_path / "bwrap", tmp_path / "canary"
    for part in [tmp_path, *tmp_path.parents[:3]]:
        if part.stat().st_uid == os.geteuid() and part != Path("/tmp"):
            part.chmod(0o755)
    bwrap.write_text(FAKES["runs bare"])
    bwrap.chmod(0o755)
    bare = BubblewrapProvider(BubblewrapOptions(bwrap_file=str(bwrap)), folder=tmp_path / "records")
    assert "it isolates nothing" in (await bare.probe()).problems[0]
    with pytest.raises(SandboxUnavailable, match="isolates nothing"):
        await exec_once(bare, ("touch", str(canary)), 5.0)
    assert not canary.exists()


async def test_without_libseccomp_nothing_runs(tmp_path, monkeypatch):
    def missing():
        raise SandboxUnavailable("libseccomp is missing: install the package libseccomp2.")

    monkeypatch.setattr(seccomp, "filter_program", missing)
    with pytest.raises(SandboxUnavailable, match="libseccomp2"):
        await exec_once(BubblewrapProvider(folder=tmp_path / "records"), ("true",), 5.0)


async def test_a_filter_that_is_none_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(seccomp, "filter_program", lambda: b"no filter")
    with pytest.raises(SandboxUnavailable):
        await exec_once(BubblewrapProvider(folder=tmp_path / "records"), ("true",), 5.0)


async def test_without_the_supervisors_program_nothing_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(box, "_PROGRAMS", tmp_path)
    with pytest.raises(SandboxUnavailable, match="zubble-box"):
        await exec_once(BubblewrapProvider(folder=tmp_path / "records"), ("true",), 5.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="about a worker that is root")
def test_the_range_of_users_never_holds_root():
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        BubblewrapOptions(uid_base=0)
    unchecked = BubblewrapOptions.model_construct(uid_base=0)
    with pytest.raises(ValueError, match="uid 0"):
        asyncio.run(BubblewrapProvider(unchecked).open(SandboxSpec("root", "root")))


@pytest.mark.bubblewrap
async def test_a_worker_that_is_not_root_isolates_just_as_well(host, provider):
    worker = await host.start_worker("open_as_nobody.py", stdout=PIPE)
    stdout, _ = await worker.communicate()
    found = json.loads(stdout.splitlines()[-1])
    assert found["uid"] != 0
    assert found["available"], found
    assert found["isolated"], found
    assert found["exit_codes"] == [0, 0, 0]
    assert "fork" in found["bomb"].lower(), "the limit of processes counts in each sandbox alone"
    assert "HTTP Error 403" in found["asked"], "and its proxy can be reached"


@pytest.mark.timeout(3_600)
async def test_many_in_a_row_and_many_at_once_leave_nothing(provider, tokens, host):
    def state():
        return {
            "processes": host.descendants(os.getpid()),
            "zombies": sum(is_zombie(pid) for pid in host.descendants(os.getpid())),
            "mounts": own_mounts(),
            "threads": threading.active_count(),
            "records": [record for record in Records(runtime_dir()) if record.worker_pid == os.getpid()],
            "groups": own_groups(provider),
            "containers": tokens() if provider.name == "docker" else {},
        }

    async def at_once():
        opened = (exec_once(provider, ("sh", "-c", "sleep 1000 & exit 3"), 60.0) for _ in range(AT_ONCE))
        assert [result.exit_code for result in await asyncio.gather(*opened)] == [3] * AT_ONCE

    kept = ENGINE_CONNECTIONS if provider.name == "docker" else 0
    await at_once()  # threads and connections to an engine are kept
    before, opened = state(), descriptors()
    for _ in range(SEQUENCE):
        assert (await exec_once(provider, ("true",), 60.0)).ok
    assert state() == before
    assert descriptors() <= opened + kept
    await at_once()
    assert state() == before
    assert descriptors() <= opened + kept


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def ways_out():
    """Sandboxes with a folder for the socket of their proxy."""
    places = runtime_dir() / "egress", Path("/run/zubble-egress")
    return {folder.name for place in places for folder in place.glob("zubble-*")}


def own_mounts():
    """Mount points of sandboxes in the host's view; what engines and networks beside us mount is theirs."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if not re.search(r"docker|containerd|netns|zubble-engine", point)]


def own_groups(provider):
    """Control groups of sandboxes that are in nobody's records."""
    cgroups = provider._machine.cgroups if provider.name == "bubblewrap" else None
    if cgroups is None:
        return set()
    before = recorded_elsewhere()
    groups = {folder.name for folder in cgroups.memory.folder.glob("zubble-*")}
    return (
        groups - before - recorded_elsewhere()
    )  # there may be others at work, who open and end some meanwhile


def recorded_elsewhere():
    """Sandboxes of other processes."""
    return {record.token for record in Records(runtime_dir()) if record.worker_pid != os.getpid()}


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return False


async def test_as_many_as_asked_live_at_once(provider, host):
    boxes = await asyncio.gather(
        *(provider.open(host.spec(name=f"living-{n}-{os.getpid()}")) for n in range(AT_ONCE))
    )
    try:
        results = await asyncio.gather(*(box.fingerprint() for box in boxes))
        assert len(results) == AT_ONCE
    finally:
        await asyncio.gather(*(box.destroy() for box in boxes))
