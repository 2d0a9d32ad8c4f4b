"""Sandboxes in containers of a Docker engine, through its API.

A container has no network, no capability, no new privileges, our seccomp profile, a read-only root, its work
tree and scratch folders in sized memory, and limits of memory, processes and processor time for all of it.
Its process 1 is the supervisor, which is copied into a volume of its own before it starts. Commands travel
through one `docker exec` of a relay, whose loss loses nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final

from zubble_queue.contracts.sandbox import MIB, NETWORKS, NetworkMode, Probe, Sandbox, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import commands, egress
from zubble_sandbox.engine import labels, trial
from zubble_sandbox.engine.api import Engine
from zubble_sandbox.engine.containers import OPEN_NETWORK, Image
from zubble_sandbox.engine.images import Images
from zubble_sandbox.engine.labels import Found
from zubble_sandbox.engine.opening import Opener, WayOut
from zubble_sandbox.engine.options import DockerOptions


class DockerProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider`.

    Args:
        options: What the settings say.
        way_out: Opens the egress proxy of a sandbox.
    """

    name: Final = "docker"
    Options: Final = DockerOptions

    def __init__(self, options: DockerOptions | None = None, *, way_out: WayOut = egress.open_for) -> None:
        self.options = options or DockerOptions()
        self._engine = Engine(self.options.host)
        self._images = Images(self._engine, self.options.pull)
        self._opener = Opener(self._engine, self.options, way_out)
        self._info: Mapping[str, Any] | None = None

    @classmethod
    def from_options(cls, options: DockerOptions) -> DockerProvider:
        return cls(options)

    async def probe(self) -> Probe:
        """Also pulls the images that the settings name, where the engine does not have them."""
        try:
            info = await self._ready()
            networks, facts = await self._networks(), trial.facts_of(info)
            for name in self.options.images:
                await self._images.get(name)
            if self.options.image is None:
                advice = "No default image is set (sandboxes.docker.image), so nothing could be tried out."
                return Probe(self.name, True, False, "none", (advice,), facts, networks)
            spec = SandboxSpec("probe", f"probe-{os.getpid()}", work_bytes=MIB, tmp_bytes=MIB)
            sandbox = await self.open(spec)
            try:
                found = await trial.try_out(sandbox, info, self.options.runtime)
            finally:
                await sandbox.destroy()
        except (SandboxUnavailable, JobError) as error:
            return Probe(self.name, available=False, isolated=False, problems=(str(error),))
        facts = {**facts, "image": self.options.image, **found.facts}
        return Probe(self.name, True, found.isolated, found.strength, found.problems, facts, networks)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        commands.check_readonly_files(spec)
        if spec.container is not None:
            raise JobError(f"The container {spec.container!r} is for `attached`; `docker` makes its own.")
        name = spec.image or self.options.image
        if name is None:
            raise JobError(
                "The task names no image, and this worker has no default one (sandboxes.docker.image)."
            )
        if spec.network == "allowlist" and not self._engine.is_here:
            raise SandboxUnavailable("An engine on another machine cannot keep an allow-list of hosts.")
        info = await self._ready()
        trial.check_room(info.get("DockerRootDir"), self.options.min_free_mb)
        return await self._opener.open(spec, await self._images.get(name))

    async def attach(self, handle: str) -> Sandbox:
        if not labels.TOKEN.fullmatch(handle):
            raise SandboxUnavailable(f"{handle!r} is not the handle of a sandbox.")
        listed = await self._engine.labelled(f"{labels.LABEL}={handle}")
        found = Found.read(listed[0]) if listed else None
        if found is None or not found.alive or not found.spec.linger_seconds:
            raise SandboxUnavailable(f"The sandbox {handle} has ended, or ends with its worker.")
        if found.worker.may_live:
            raise SandboxUnavailable(f"The sandbox {handle} has a worker that lives.")
        inspected = await self._engine.image(found.image)
        if inspected is None:
            raise SandboxUnavailable(f"The image of the sandbox {handle} was removed.")
        return await self._opener.adopt(found, Image.of(inspected))

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        """Of an engine that does not answer nothing is reaped, until it does."""
        count = 0
        with contextlib.suppress(SandboxUnavailable):
            for found in map(Found.read, await self._engine.labelled(labels.LABEL)):
                if found is not None and found.spec.owner not in keep_owners and found.orphaned:
                    count += await self._engine.remove(found.id)
                    egress.forget(found.record.token)
        return count

    async def _networks(self) -> tuple[NetworkMode, ...]:
        """What can be kept: the way out of an allow-list is a socket of this machine."""
        has = {
            "none": True,
            "allowlist": self._engine.is_here,
            "open": OPEN_NETWORK in await self._engine.networks(),
        }
        return tuple(network for network in NETWORKS if has[network])

    def close(self) -> None:
        """Give up threads and connections; sandboxes are the engine's and stay."""
        self._engine.close()

    async def _ready(self) -> Mapping[str, Any]:
        """What the engine said about itself when it was first asked. Raises SandboxUnavailable."""
        if self._info is None:
            info = await self._engine.info()
            trial.check_engine(info, self.options.runtime)
            self._info = info
        return self._info
