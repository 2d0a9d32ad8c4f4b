"""Sandboxes in containers of a Docker engine, through its API.

A container has no network, no capability, no new privileges, our seccomp profile, a read-only root, its work
tree and scratch folders in sized memory, and limits of memory, processes and processor time for all of it.
Its process 1 is the supervisor, which is copied into a volume of its own before it starts. Commands travel
through one `docker exec` of a relay, whose loss loses nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

from zubble_queue.contracts.sandbox import MIB, HostUse, Probe, Sandbox, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import box, commands, egress
from zubble_sandbox.channel import RECONNECT_SECONDS, Channel
from zubble_sandbox.egress import Egress
from zubble_sandbox.engine import containers, labels, trial
from zubble_sandbox.engine.api import Engine
from zubble_sandbox.engine.container import Container
from zubble_sandbox.engine.containers import Image, Plan
from zubble_sandbox.engine.images import Images, tree_of
from zubble_sandbox.engine.labels import Record
from zubble_sandbox.engine.options import DockerOptions
from zubble_sandbox.line import LineLost
from zubble_sandbox.secret import key_of
from zubble_sandbox.supervised import GRACE_SECONDS, Setup, SupervisedSandbox

_OOM_FILES: Final = "/sys/fs/cgroup/memory.events:/sys/fs/cgroup/memory/memory.oom_control"
_RUNNING: Final = frozenset({"created", "running", "paused", "restarting"})


class DockerProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider`."""

    name: Final = "docker"
    Options: Final = DockerOptions

    def __init__(self, options: DockerOptions | None = None) -> None:
        self._options = options or DockerOptions()
        self._engine = Engine(self._options.host)
        self._images = Images(self._engine, self._options.pull)
        self._info: Mapping[str, Any] | None = None
        self._bare: set[tuple[str, str]] = set()
        """Images and folders in which there is nothing to begin with."""

    @classmethod
    def from_options(cls, options: DockerOptions) -> DockerProvider:
        return cls(options)

    async def probe(self) -> Probe:
        """Also pulls the images that the settings name, where the engine does not have them."""
        try:
            info = await self._ready()
            facts = trial.facts_of(info)
            for name in self._options.images:
                await self._images.get(name)
            if self._options.image is None:
                advice = "No default image is set (sandboxes.docker.image), so nothing could be tried out."
                return Probe(self.name, True, False, "none", (advice,), facts)
            spec = SandboxSpec(name="probe", owner=f"probe-{os.getpid()}", work_bytes=MIB, tmp_bytes=MIB)
            sandbox = await self.open(spec)
            try:
                found = await trial.try_out(sandbox, info, self._options.runtime)
            finally:
                await sandbox.destroy()
        except (SandboxUnavailable, JobError) as error:
            return Probe(self.name, available=False, isolated=False, problems=(str(error),))
        facts = {**facts, "image": self._options.image, **found.facts}
        return Probe(self.name, True, found.isolated, found.strength, found.problems, facts)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        _check(spec)
        info = await self._ready()
        trial.check_room(info.get("DockerRootDir"), self._options.min_free_mb)
        image = await self._image(spec)
        record = Record.new(spec)
        containers.work_dir(spec, image)
        way_out = await egress.open_for(spec, record.token)
        container = Container(self._engine, record, way_out)
        try:
            return await self._open(spec, image, record, container, way_out)
        except (SandboxUnavailable, LineLost, TimeoutError) as error:
            reason = str(error) or "it did not answer"
            if isinstance(error, LineLost):
                reason = await container.fate()
            await container.end()
            raise SandboxUnavailable(f"A docker sandbox could not be opened: {reason}") from error
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(container.end()))
            raise

    async def attach(self, handle: str) -> Sandbox:
        found = await self._engine.state(handle)
        read = None if found is None else labels.read_labels(found["Config"]["Labels"] or {})
        if found is None or read is None:
            raise SandboxUnavailable(f"The sandbox {handle!r} has ended.")
        record, spec = read
        image = Image.of(await self._engine.image(found["Image"]) or {})
        way_out = await egress.open_for(spec, record.token)
        container = Container(self._engine, record, way_out)
        return await self._enter(spec, image, record, container, way_out)

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        count = 0
        for found in await self._engine.labelled(labels.LABEL):
            read = labels.read_labels(found["Labels"])
            if read is None:
                continue
            record, spec = read
            if spec.owner not in keep_owners and record.orphaned(spec, running=found["State"] in _RUNNING):
                count += await self._engine.remove(record.token)
        return count

    def close(self) -> None:
        """Give up threads and connections; sandboxes are the engine's and stay."""
        self._engine.close()

    async def _ready(self) -> Mapping[str, Any]:
        """What the engine said about itself when it was first asked. Raises SandboxUnavailable."""
        if self._info is None:
            info = await self._engine.info()
            trial.check_engine(info, self._options.runtime)
            self._info = info
        return self._info

    async def _image(self, spec: SandboxSpec) -> Image:
        name = spec.image or self._options.image
        if name is None:
            raise JobError(
                "The task names no image, and this worker has no default one (sandboxes.docker.image)."
            )
        return await self._images.get(name)

    async def _open(
        self, spec: SandboxSpec, image: Image, record: Record, container: Container, way_out: Egress | None
    ) -> Sandbox:
        argv = (
            *(containers.BOX, "supervise", "--listen", containers.SOCKET, "--key", key_of(record.secret)),
            *("--linger", f"{RECONNECT_SECONDS:g}", record.token),
        )
        folder = None if way_out is None else way_out.folder
        plan = Plan(spec, image, argv, labels.labels_of(record, spec), folder)
        program = box.binary(image.architecture).read_bytes()
        archives = {containers.BOX_DIR: containers.archive({"box": program}, containers.PROGRAM_MODE)}
        if spec.readonly_files:
            files = {path[len(spec.verify_dir) + 1 :]: data for path, data in spec.readonly_files.items()}
            archives[spec.verify_dir] = containers.archive(files, containers.FILE_MODE)
        await container.create(containers.container_config(plan, self._options), archives)
        beginning = await self._beginning(plan, container)
        await container.start()
        sandbox = await self._enter(spec, image, record, container, way_out)
        if beginning is not None:
            await _begin_with(sandbox, beginning)
        return sandbox

    async def _enter(
        self, spec: SandboxSpec, image: Image, record: Record, container: Container, way_out: Egress | None
    ) -> DockerSandbox:
        channel = Channel(await container.connect(), container.connect)
        setup = _setup(spec, image, way_out)
        sandbox = await DockerSandbox.begin(spec, setup, channel, container.end)
        sandbox.handle_ = record.token if spec.linger_seconds else None
        sandbox.way_out = way_out
        return sandbox

    async def _beginning(self, plan: Plan, container: Container) -> bytes | None:
        """The snapshot of what the image holds where the work tree will be. Raises JobError."""
        where = plan.image.id, plan.work
        if where in self._bare:
            return None
        try:
            found = await container.content(plan.work, max_bytes=plan.spec.work_bytes)
        except ValueError as large:
            raise JobError(f"The work tree of the image does not fit: {large}.") from large
        if found is None:
            self._bare.add(where)
            return None
        return await asyncio.to_thread(tree_of, found)


class DockerSandbox(SupervisedSandbox):
    """A container that may be adopted, and may have a way out."""

    handle_: str | None = None
    way_out: Egress | None = None

    @property
    def handle(self) -> str | None:
        return self.handle_

    @property
    def host_uses(self) -> tuple[HostUse, ...]:
        return () if self.way_out is None else self.way_out.uses()


def _check(spec: SandboxSpec) -> None:
    commands.check_readonly_files(spec)
    if spec.container is not None:
        raise JobError(f"The container {spec.container!r} can be run in by `attached` only, not by `docker`.")


def _setup(spec: SandboxSpec, image: Image, way_out: Egress | None) -> Setup:
    work = containers.work_dir(spec, image)
    own = {"HOME": containers.TMP_DIR, "ZUBBLE_WORK": work, "ZUBBLE_VERIFY": spec.verify_dir}
    tops = {folder.split("/")[1] for folder in (work, spec.verify_dir, *spec.scratch)}
    return Setup(
        mode="namespace",
        folders={
            **{top: f"/{top}" for top in sorted(tops)},
            "tmp": containers.TMP_DIR,
            "work": work,
        },
        env={**commands.BASE_ENV, **image.env, **own, **(way_out.env if way_out else {}), **spec.env},
        limits=False,
        oom=_OOM_FILES,
        forward=(egress.PORT, egress.INSIDE_SOCKET) if way_out else (0, ""),
        grace_seconds=GRACE_SECONDS + RECONNECT_SECONDS,
        linger_seconds=RECONNECT_SECONDS,
    )


async def _begin_with(sandbox: Sandbox, beginning: bytes) -> None:
    try:
        await sandbox.restore(beginning)
    except (OSError, ValueError) as unfit:
        await sandbox.destroy()
        raise JobError(f"The work tree of the image cannot be put in place: {unfit}.") from unfit
