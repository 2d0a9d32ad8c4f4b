"""Exec streams that break (attack 68): one execution, its real result or an explicit failure, and no hang."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from dataclasses import replace

import pytest

from zubble_queue.contracts.sandbox import MIB, Command, SandboxSpec, shell
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.line import LineLost

pytestmark = pytest.mark.slow
SPEC = SandboxSpec(name="1-task-0123abcd.2.agent", owner="worker-1", work_bytes=32 * MIB, tmp_bytes=8 * MIB)
COUNT = "echo once >>runs; head -c 300000 /dev/zero | tr '\\0' x; echo err >&2; exit 42"


@pytest.fixture
async def sandbox(provider):
    sandbox = await provider.open(SPEC)
    yield sandbox
    await sandbox.destroy()


def cut_now(cluster, *cuts):
    """Abort the stream that is open, and the next ones after so many bytes."""
    cluster.faults.cuts = list(cuts)
    cluster.abort_streams()


async def runs(sandbox) -> int:
    return len((await sandbox.read("runs")).splitlines())


async def test_a_stream_cut_at_random_bytes_runs_a_command_once_and_tells_its_end(cluster, sandbox):
    chance = random.Random(20261130)
    for turn in range(1, 13):
        # AUTH and its answer take 73 and 9 bytes, the command about 300, its result about 131,000
        cut_now(cluster, *((chance.randrange(600), chance.randrange(140_000)) for _ in range(4)))
        result = await sandbox.exec(shell(COUNT))
        assert (result.exit_code, result.signal, result.timed_out) == (42, None, False)
        assert (result.stdout_bytes, result.stderr) == (300_000, b"err\n")
        cluster.faults.cuts = []
        assert await runs(sandbox) == turn


async def test_files_and_snapshots_survive_cuts(cluster, sandbox):
    chance = random.Random(4)
    data = chance.randbytes(4 * MIB)
    cut_now(cluster, *((chance.randrange(5 * MIB), 1 << 30) for _ in range(3)))
    await sandbox.write("large", data)
    cut_now(cluster, *((1 << 30, chance.randrange(4 * MIB)) for _ in range(3)))
    assert await sandbox.read("large") == data
    cut_now(cluster, (1 << 30, 2 * MIB), (1 << 30, 3 * MIB))
    snapshot = await sandbox.snapshot()
    cut_now(cluster, (2 * MIB, 1 << 30), (3 * MIB, 1 << 30))
    await sandbox.restore(snapshot)
    assert await sandbox.read("large") == data


async def test_a_command_with_four_mebibytes_of_input_gets_them_whole(cluster, sandbox):
    text = "x" * 100_000
    words = tuple(text for _ in range(20))
    result = await sandbox.exec(Command(("/bin/sh", "-c", 'echo $#; printf %s "$@" | wc -c', "sh", *words)))
    assert result.stdout.split() == [b"20", b"2000000"]
    await sandbox.write("in", b"y" * (4 * MIB))
    assert (await sandbox.exec(shell("wc -c <in; sha256sum in"))).stdout.startswith(b"4194304\n")


@pytest.mark.parametrize("status", ["empty", "none", "full"])
async def test_an_end_of_the_stream_is_no_end_of_the_command(cluster, sandbox, status):
    cluster.faults.status = status
    running = asyncio.create_task(sandbox.exec(shell("echo once >>runs; sleep 1; exit 7")))
    await asyncio.sleep(0.3)
    await cluster.end_relays()
    assert (await running).exit_code == 7
    assert await runs(sandbox) == 1


async def test_old_clusters_and_small_messages_do_as_well(cluster, make_provider):
    cluster.faults.protocol, cluster.faults.piece = "v4.channel.k8s.io", 7
    sandbox = await make_provider().open(SPEC)
    assert (await sandbox.exec(shell("echo $((6*7)); exit 3"))).stdout == b"42\n"
    await sandbox.destroy()


async def test_refused_streams_are_tried_again(cluster, sandbox):
    cluster.faults.refusals = [500, 503, 404, 400]
    cut_now(cluster)
    assert (await sandbox.exec(shell("echo on"))).stdout == b"on\n"


async def test_a_second_stream_takes_the_place_of_the_first(cluster, sandbox):
    """As when a load balancer still holds the old one open."""
    running = asyncio.create_task(sandbox.exec(shell("echo once >>runs; sleep 1; exit 9")))
    await asyncio.sleep(0.3)
    line = await sandbox._channel._reconnect()
    assert (await running).exit_code == 9
    await line.close()
    assert await runs(sandbox) == 1


async def test_a_dead_peer_is_noticed_by_its_silence(cluster, provider, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.kube_exec.KEEP_ALIVE_SECONDS", 0.4)
    sandbox = await provider.open(SPEC)
    running = asyncio.create_task(sandbox.exec(shell("echo once >>runs; sleep 2; exit 5")))
    await asyncio.sleep(0.3)
    cluster.stall_streams()
    async with asyncio.timeout(30):
        assert (await running).exit_code == 5
    assert cluster.streams > 2
    assert await runs(sandbox) == 1
    await sandbox.destroy()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}},
            "Evicted",
        ),
        ({"metadata": {"uid": "another"}}, "its pod was deleted"),
        ({"restarted": True}, "its container was restarted"),
        ({"oom": True}, "memory ran out"),
    ],
)
async def test_a_pod_that_is_not_the_same_any_more_is_an_explicit_failure(cluster, sandbox, change, why):
    running = asyncio.create_task(sandbox.exec(shell("sleep 60")))
    await asyncio.sleep(0.3)
    [pod] = cluster.objects["pods"].values()
    box = pod["status"]["containerStatuses"][0]
    if change.pop("restarted", False):
        box["restartCount"] = 1
    if change.pop("oom", False):
        box["state"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    for part, values in change.items():
        pod[part] = {**pod[part], **values} if part == "metadata" else values
    cut_now(cluster)
    with pytest.raises(SandboxUnavailable, match=why):
        async with asyncio.timeout(30):
            await running


async def test_a_supervisor_that_is_killed_is_an_explicit_failure(cluster, sandbox):
    running = asyncio.create_task(sandbox.exec(shell("sleep 60")))
    await asyncio.sleep(0.3)
    os.kill(cluster.container(next(iter(cluster.objects["pods"]))).pid, signal.SIGKILL)
    with pytest.raises(SandboxUnavailable, match=r"its container ended \(Error, exit code"):
        async with asyncio.timeout(30):
            await running


async def test_a_stream_that_never_comes_back_is_a_failure_in_bounded_time(cluster, sandbox, monkeypatch):
    monkeypatch.setattr("zubble_sandbox.channel.RECONNECT_SECONDS", 1.0)
    cluster.faults.refusals = [503] * 1_000
    cut_now(cluster)
    with pytest.raises(SandboxUnavailable, match="cannot be reached any more"):
        async with asyncio.timeout(30):
            await sandbox.exec(shell("echo never"))


async def test_a_filling_that_breaks_is_done_again_and_one_that_cannot_be_done_is_told(cluster, provider):
    cluster.faults.cuts = [(10_000, 1 << 30), (1 << 30, 20)]
    sandbox = await provider.open(replace(SPEC, readonly_files={"/verify/a": b"a", "/verify/b": b"b"}))
    assert (await sandbox.exec(shell("cat /verify/*"))).stdout == b"ab"
    await sandbox.destroy()
    cluster.faults.cuts = [(10, 10)] * 3
    with pytest.raises(SandboxUnavailable, match="could not be filled"):
        await provider.open(SPEC)
    assert not cluster.objects["pods"]


async def test_a_line_that_is_no_supervisors_is_not_believed(cluster, sandbox):
    """Whatever stands on the stream that is not an answer to our secret."""
    wrong = replace(sandbox._channel._reconnect.__self__, secret="0" * 64)
    with pytest.raises(LineLost):
        await wrong.line()
    assert (await sandbox.exec(shell("echo on"))).stdout == b"on\n"
