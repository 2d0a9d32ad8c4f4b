"""Which backends there are here."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.docker_engine import TOOLS_IMAGE, tools_root
from zubble_queue.contracts.sandbox import Probe
from zubble_sandbox.attached import AttachedProvider
from zubble_sandbox.bubblewrap import BubblewrapOptions, BubblewrapProvider
from zubble_sandbox.docker_engine import DockerProvider
from zubble_sandbox.engine.options import AttachedOptions, DockerOptions
from zubble_sandbox.images.store import Images
from zubble_sandbox.local import LocalProvider

LEAST_FREE_MB = 100
BACKENDS = (
    *("local", "bubblewrap"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("docker", "attached", "bubblewrap in an image")
    ),
)
SHARED = {"local": LocalProvider(), "bubblewrap": BubblewrapProvider()}
PROBED: dict[str, Probe] = {}
"""Of those that are shared by all tests."""


class InFreshContainers:
    """The provider `attached`, with a new container for every sandbox: the promises are about one's own."""

    name = AttachedProvider.name

    def __init__(self, host, client, folder) -> None:
        self._host, self._client = host, client
        self._provider = AttachedProvider(AttachedOptions(host=host, allow=("dev-*",)), folder=folder)
        self._numbers = itertools.count(1)
        self.made: list[str] = []

    @property
    def options(self) -> AttachedOptions:
        """For a worker of its own, which has a container of its own."""
        return AttachedOptions(host=self._host, container=self._container())

    async def open(self, spec):
        return await self._provider.open(replace(spec, container=self._container()))

    def __getattr__(self, name):
        return getattr(self._provider, name)

    def _container(self) -> str:
        name = f"dev-{next(self._numbers)}"
        self._client.create_container(
            TOOLS_IMAGE,
            name=name,
            command=["/bin/sh", "-c", "mkdir -p /tmp /work /app/code; while :; do sleep 1000; done"],
            host_config=self._client.create_host_config(network_mode="none"),
        )
        self.made.append(name)
        self._client.start(name)
        return name


class InAnImage:
    """The provider `bubblewrap`, with an image in place of the host's programs."""

    name = BubblewrapProvider.name

    def __init__(self, folder) -> None:
        self._provider = BubblewrapProvider(BubblewrapOptions(images_folder=folder))

    async def open(self, spec):
        return await self._provider.open(replace(spec, image=TOOLS_IMAGE))

    def __getattr__(self, name):
        return getattr(self._provider, name)


@pytest.fixture(scope="session")
def images_folder():
    """A store with one image of this machine's programs, where the users of sandboxes can get to it."""
    folder = Path(tempfile.mkdtemp(prefix="zubble-images-"))
    folder.chmod(0o711)
    (folder / "tools.tar").write_bytes(tools_root())
    Images(folder / "images").pull(folder / "tools.tar", name=TOOLS_IMAGE)
    yield folder / "images"
    shutil.rmtree(folder)


@pytest.fixture(params=BACKENDS)
async def provider(request, missing_part):
    with contextlib.ExitStack() as ending:
        provider = make(request, ending)
        probe = PROBED.get(request.param) or await provider.probe()
        if request.param in SHARED:
            PROBED[request.param] = probe
        if not probe.available:
            missing_part(f"{request.param} is not available: {'; '.join(probe.problems)}")
        yield provider


def make(request, ending):
    if request.param in SHARED:
        return SHARED[request.param]
    if request.param == "bubblewrap in an image":
        return InAnImage(request.getfixturevalue("images_folder"))
    engine = request.getfixturevalue("docker_engine")
    if request.param == "docker":
        provider = DockerProvider(
            DockerOptions(host=engine.host, image=TOOLS_IMAGE, min_free_mb=LEAST_FREE_MB)
        )
        ending.callback(provider.close)
        return provider
    client = engine.client()
    ending.callback(client.close)
    provider = InFreshContainers(engine.host, client, None)
    ending.callback(lambda: [client.remove_container(name, force=True, v=True) for name in provider.made])
    return provider
