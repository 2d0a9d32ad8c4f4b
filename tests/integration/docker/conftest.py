"""A real engine, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import tarfile
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_sandbox.docker_engine import DockerProvider
from zubble_sandbox.engine.options import DockerOptions

LEAST_FREE_MB = 100
_numbers = itertools.count(1)


@pytest.fixture
def spec():
    """Makes small specs with names of their own."""

    def spec(**changes):
        fields = {"work_bytes": 32 * MIB, "tmp_bytes": 8 * MIB, "max_life_seconds": 300.0, **changes}
        return SandboxSpec(
            name=f"docker-{os.getpid()}-{next(_numbers)}", owner=f"docker-{os.getpid()}", **fields
        )

    return spec


@pytest.fixture
def new_provider(docker_engine):
    """Makes providers on the engine, by default with the image that has tools."""
    from benchmarks.docker_engine import TOOLS_IMAGE

    with contextlib.ExitStack() as ending:

        def make(**options):
            given = {
                "host": docker_engine.host,
                "image": TOOLS_IMAGE,
                "min_free_mb": LEAST_FREE_MB,
                **options,
            }
            provider = DockerProvider(DockerOptions(**given))
            ending.callback(provider.close)
            return provider

        yield make


@pytest.fixture
def provider(new_provider):
    return new_provider()


class Seen:
    """The engine as its owner sees it."""

    def __init__(self, client) -> None:
        self.client = client

    def containers(self):
        """Ours, by token."""
        listed = self.client.containers(all=True, filters={"label": "zubble.sandbox"})
        return {each["Labels"]["zubble.sandbox"]: each for each in listed}

    def volumes(self):
        return {each["Name"] for each in self.client.volumes()["Volumes"] or ()}

    def marked(self, token):
        """Processes of the machine that carry the mark of a sandbox."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if token.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def relays(self):
        """Processes of this engine's containers that carry bytes to a supervisor."""
        ids, found = [each["Id"] for each in self.client.containers()], []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                    ours = any(each in (entry / "cgroup").read_text() for each in ids)
                    if ours and arguments[1:3] == [b"relay", b"@zubble"]:
                        found.append(int(entry.name))
        return found

    def make_image(self, name, *, files=(), changes=()):
        """From the image with tools and more files: path, kind of tar entry, target of a link, content."""
        from benchmarks.docker_engine import TOOLS_IMAGE

        container = self.client.create_container(TOOLS_IMAGE, command=["true"])["Id"]
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            for path, kind, target, content in files:
                entry = tarfile.TarInfo(path)
                entry.type, entry.linkname, entry.size, entry.mode = kind, target, len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
        self.client.put_archive(container, "/", file.getvalue())
        repository, _, tag = name.partition(":")
        self.client.commit(container, repository=repository, tag=tag, changes=list(changes))
        self.client.remove_container(container)
        return name


@pytest.fixture
def until():
    """Waits for what must come true; the condition may be a coroutine function."""

    async def until(condition):
        async with asyncio.timeout(60):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(0.02)

    return until


@pytest.fixture
def seen(docker_engine):
    with contextlib.closing(docker_engine.client()) as client:
        yield Seen(client)
