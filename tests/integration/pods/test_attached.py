"""Running in a pod that somebody else made."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.integration.pods.one_process import NAMESPACE
from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_queue.errors import JobError
from zubble_sandbox.attached import AttachedProvider
from zubble_sandbox.engine.options import AttachedOptions

pytestmark = pytest.mark.slow

POD = f"{NAMESPACE}/service"


@pytest.fixture
async def service(cluster):
    """A pod with one container that sleeps."""
    volumes = {"work": "/work", "tmp": "/tmp"}
    manifest = {
        "kind": "Pod",
        "metadata": {"name": "service", "ownerReferences": []},
        "spec": {
            "securityContext": {"runAsUser": 50_000},
            "volumes": [{"name": name, "emptyDir": {"sizeLimit": "33554432"}} for name in volumes],
            "initContainers": [],
            "containers": [
                {
                    "name": "main",
                    "command": ["/bin/sh", "-c", "while :; do sleep 1000; done"],
                    "workingDir": "/",
                    "volumeMounts": [{"name": name, "mountPath": path} for name, path in volumes.items()],
                }
            ],
        },
    }
    url = f"http://127.0.0.1:{cluster.port}/api/v1/namespaces/{NAMESPACE}/pods"
    headers = {"Authorization": "Bearer a-token"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=manifest) as made:
        assert made.status == 201
    async with asyncio.timeout(60):
        while cluster.objects["pods"]["service"]["status"]["phase"] != "Running":  # noqa: ASYNC110 - its own
            await asyncio.sleep(0.02)
    return cluster


@pytest.fixture
def provider(cluster, tmp_path):
    options = AttachedOptions(kubeconfig_file=str(cluster.kubeconfig()), allow=(f"{NAMESPACE}/*",))
    return AttachedProvider(options, folder=tmp_path / "records")


def spec(**changes):
    return SandboxSpec(name="attached", owner="tests", **{"container": POD, **changes})


async def output(sandbox, text):
    result = await sandbox.exec(shell(text))
    assert result.ok, result
    return result.stdout.decode()


async def test_commands_run_in_the_pod_and_nothing_of_ours_stays(service, provider):
    sandbox = await provider.open(spec())
    assert await output(sandbox, "id -u; pwd; echo made >made") == "50000\n/work\n"
    assert await sandbox.read("made") == b"made\n"
    check = await provider.open(
        spec(container=f"{POD}/main", readonly_files={"/verify/check": b"#!/bin/sh\nexit 3\n"})
    )
    assert (await check.exec(shell("test -f made && $ZUBBLE_VERIFY/check"))).exit_code == 3
    await check.destroy()
    await sandbox.destroy()
    again = await provider.open(spec())
    left = (await output(again, "ls -A /tmp")).split()
    assert left == [(await output(again, "dirname $TMPDIR")).strip().removeprefix("/tmp/")]
    assert await output(again, "cat made") == "made\n", "what commands did stays"
    await again.destroy()
    assert await provider.reap() == 0


async def test_a_broken_stream_costs_no_command_and_runs_none_twice(service, provider):
    sandbox = await provider.open(spec())
    running = asyncio.create_task(sandbox.exec(shell("echo x >>runs; sleep 2; echo done; exit 7")))
    for _ in range(3):
        await asyncio.sleep(0.4)
        service.abort_streams()
    result = await running
    assert (result.exit_code, result.stdout) == (7, b"done\n")
    assert await sandbox.read("runs") == b"x\n"
    await sandbox.destroy()


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        (f"{NAMESPACE}/nobody", "does not exist"),
        (f"{POD}/sidecar", "has no such container"),
        ("elsewhere/service", "not allowed"),
        ("service", "not allowed"),
    ],
)
async def test_a_pod_that_cannot_be_attached_to_is_the_tasks_fault(service, provider, container, problem):
    with pytest.raises(JobError, match=problem):
        await provider.open(spec(container=container))
