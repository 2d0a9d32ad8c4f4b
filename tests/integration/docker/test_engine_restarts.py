"""The engine itself is killed and comes back (attack 66)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from benchmarks import docker_engine
from zubble_queue.contracts.sandbox import shell
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.docker_engine import DockerProvider
from zubble_sandbox.engine.options import DockerOptions

pytestmark = pytest.mark.slow


@pytest.fixture
def own_engine(missing_part):
    """One that a test may kill."""
    with contextlib.ExitStack() as ending:
        try:
            engine = ending.enter_context(docker_engine.running())
        except docker_engine.NoEngine as missing:
            missing_part(str(missing))
        yield engine


async def _has_started(sandbox):
    return "started" in [entry.path for entry in await sandbox.list()]


async def test_a_killed_engine_loses_sandboxes_with_a_sentence_and_they_are_reaped_by_label(
    own_engine, spec, until, seen
):
    options = DockerOptions(host=own_engine.host, image=docker_engine.TOOLS_IMAGE, min_free_mb=100)
    provider = DockerProvider(options)
    with contextlib.closing(provider), contextlib.closing(own_engine.client()) as client:
        sandbox = await provider.open(spec())
        running = asyncio.create_task(sandbox.exec(shell("echo >started; sleep 1000", timeout_seconds=900)))
        await until(lambda: _has_started(sandbox))
        own_engine.kill()
        with pytest.raises(SandboxUnavailable):
            await sandbox.list()
        with pytest.raises(SandboxUnavailable):
            await running
        with pytest.raises(SandboxUnavailable, match="does not answer"):
            await provider.open(spec())
        assert await provider.reap() == 0
        await sandbox.destroy()

        own_engine.start()
        left = client.containers(all=True, filters={"label": "zubble.sandbox"})
        assert len(left) == 1, "control: nobody has removed it yet"
        await until(lambda: not seen.marked(left[0]["Labels"]["zubble.sandbox"]))
        again = await provider.open(spec())
        assert (await again.exec(shell("echo on"))).stdout == b"on\n"
        client.rename(left[0]["Id"], left[0]["Names"][0][1:].rpartition(".")[0] + ".1")
        assert await provider.reap() == 1
        assert len(client.containers(all=True, filters={"label": "zubble.sandbox"})) == 1
        await again.destroy()
