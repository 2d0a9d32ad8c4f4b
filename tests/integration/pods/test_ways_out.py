"""Allow-lists of pods: the worker's proxy, through a carrier beside the sandbox, over streams that break."""

from __future__ import annotations

import os
import socket

import pytest

from tests.abuse.egress.conftest import PUBLIC
from tests.integration.pods.outside import DIGEST, GET, HOST, PAGE, serving
from zubble_queue.contracts.sandbox import MIB, SandboxSpec, shell
from zubble_sandbox.records import private_dir, runtime_dir

pytestmark = pytest.mark.slow
SPEC = SandboxSpec(
    name="1-task-0123abcd.2.agent",
    owner="worker-1",
    work_bytes=32 * MIB,
    tmp_bytes=8 * MIB,
    network="allowlist",
    allowed_hosts=(HOST,),
)


@pytest.fixture
async def outside(monkeypatch):
    async with serving(monkeypatch) as world:
        yield world


@pytest.fixture
async def sandbox(provider, outside):
    sandbox = await provider.open(SPEC)
    yield sandbox
    await sandbox.destroy()


async def test_programs_reach_what_is_allowed_several_at_a_time(sandbox):
    many = f"{' & '.join([GET] * 4)} & wait"
    assert (await sandbox.exec(shell(many, timeout_seconds=60))).stdout == DIGEST * 4
    [use] = sandbox.host_uses
    assert (use.host, use.allowed, use.denied) == (HOST, 4, 0)
    assert use.received_bytes > 4 * len(PAGE)


async def test_the_pod_is_one_that_the_policy_holds_and_the_proxy_its_only_way_out(cluster, sandbox):
    [pod] = cluster.objects["pods"].values()
    assert pod["metadata"]["labels"]["zubble-queue/network"] == "allowlist"
    direct = f"python3 -c 'import socket; socket.create_connection((\"{PUBLIC}\", 80), 5)'"
    assert not (await sandbox.exec(shell(direct))).ok
    killed = await sandbox.exec(shell("kill -9 -1"))
    assert not killed.ok
    assert (await sandbox.exec(shell(GET))).stdout == DIGEST, "no command ends the carrier"


@pytest.mark.parametrize("lost", ["stream", "carrier"])
async def test_the_way_out_is_there_again_after_its_stream_or_its_carrier_was_lost(cluster, sandbox, lost):
    assert (await sandbox.exec(shell(GET))).stdout == DIGEST
    if lost == "stream":
        cluster.abort_streams()
    else:
        await cluster.end_relays()
    again = f"for n in $(seq 100); do {GET} 2>/dev/null && exit; sleep 0.1; done"
    assert (await sandbox.exec(shell(again, timeout_seconds=60))).stdout == DIGEST


async def test_it_ends_with_its_sandbox(provider, outside):
    folders = runtime_dir() / "egress"
    sandbox = await provider.open(SPEC)
    assert len(list(folders.glob("pod-*"))) == 1
    await provider.reap()
    assert len(list(folders.glob("pod-*"))) == 1, "it lives"
    await sandbox.destroy()
    assert not list(folders.glob("pod-*"))


async def test_what_a_dead_worker_left_of_one_is_removed(provider):
    left = private_dir(runtime_dir() / "egress") / "pod-zubble-left"
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left / "proxy"))
    os.utime(left, (0, 0))
    await provider.reap()
    assert not left.exists()
