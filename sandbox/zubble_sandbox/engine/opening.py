"""From an image to a living sandbox in a container of it, and into one that another worker opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from zubble_queue.contracts.sandbox import Sandbox, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import box, commands, egress
from zubble_sandbox.channel import RECONNECT_SECONDS, Channel
from zubble_sandbox.egress import Egress
from zubble_sandbox.engine import containers
from zubble_sandbox.engine.api import Engine
from zubble_sandbox.engine.container import Container
from zubble_sandbox.engine.containers import Image, Plan
from zubble_sandbox.engine.images import tree_of
from zubble_sandbox.engine.labels import Found, Record
from zubble_sandbox.engine.options import DockerOptions
from zubble_sandbox.line import LineLost
from zubble_sandbox.secret import key_of
from zubble_sandbox.supervised import GRACE_SECONDS, Setup, SupervisedSandbox

_OOM_FILES: Final = "/sys/fs/cgroup/memory.events:/sys/fs/cgroup/memory/memory.oom_control"

WayOut = Callable[..., Awaitable[Egress | None]]
"""As `egress.open_for`."""


class Opener:
    """One per engine."""

    def __init__(self, engine: Engine, options: DockerOptions, way_out: WayOut) -> None:
        self._engine, self._options, self._way_out = engine, options, way_out
        self._bare: set[tuple[str, str]] = set()
        """Images and folders in which there is nothing to begin with."""

    async def open(self, spec: SandboxSpec, image: Image) -> Sandbox:
        """Raises JobError or SandboxUnavailable; nothing is left behind then."""
        containers.work_dir(spec, image)
        options = self._options
        record = Record.new(spec, range(options.uid_base, options.uid_base + options.uid_count - 1))
        way_out = await self._way_out(spec, record.token)
        container = Container(self._engine, record, way_out)
        try:
            beginning = await self._make(spec, image, record, container, way_out)
            sandbox = await self._enter(spec, image, record, container, way_out)
            if beginning is not None:
                await _begin_with(sandbox, beginning)
            return sandbox
        except (SandboxUnavailable, LineLost, OSError, TimeoutError) as error:
            reason = await container.fate() if isinstance(error, LineLost) else str(error)
            await container.end()
            raise SandboxUnavailable(
                f"A docker sandbox could not be opened: {reason or 'its supervisor does not answer'}"
            ) from error
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(container.end()))
            raise

    async def adopt(self, found: Found, image: Image) -> Sandbox:
        """Raises SandboxUnavailable; the container is gone then."""
        way_out = await self._way_out(found.spec, found.record.token)
        container = Container(self._engine, found.record, way_out)
        try:
            await container.adopt(found.id)
            channel = Channel(await container.connect(), container.connect)
            setup, handle = _setup(found.spec, image, way_out), found.record.token
            with_it = found.spec, setup, channel, container.end, handle
            sandbox = await _closing(channel, SupervisedSandbox.adopt(*with_it))
        except (SandboxUnavailable, LineLost, TimeoutError) as error:
            await container.end()
            raise SandboxUnavailable(f"The sandbox {found.record.token} has ended: {error}.") from error
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(container.end()))
            raise
        sandbox.way_out = way_out
        return sandbox

    async def _make(
        self, spec: SandboxSpec, image: Image, record: Record, container: Container, way_out: Egress | None
    ) -> bytes | None:
        """Start the container; the snapshot that its work tree begins with."""
        argv = (
            *(containers.BOX, "supervise", "--listen", containers.SOCKET, "--key", key_of(record.secret)),
            *("--linger", f"{_linger_seconds(spec):g}", record.token),
        )
        folder = None if way_out is None else way_out.folder
        plan = Plan(spec, image, argv, record.labels(spec), record.uid, folder)
        mode = containers.PROGRAM_MODE if self._options.runtime is None else containers.FILE_MODE
        archives = await asyncio.to_thread(_archives, spec, image, mode)
        await container.create(containers.container_config(plan, self._options), archives)
        beginning = await self._beginning(plan, container)
        await container.start()
        return beginning

    async def _enter(
        self, spec: SandboxSpec, image: Image, record: Record, container: Container, way_out: Egress | None
    ) -> SupervisedSandbox:
        channel = Channel(await container.first_line(), container.connect)
        setup, handle = _setup(spec, image, way_out), record.token if spec.linger_seconds else None
        with_it = spec, setup, channel, container.end, handle
        sandbox = await _closing(channel, SupervisedSandbox.begin(*with_it))
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


async def _closing(channel: Channel, entering: Coroutine[Any, Any, SupervisedSandbox]) -> SupervisedSandbox:
    """Close the channel where there will be no sandbox to do it."""
    try:
        return await entering
    except BaseException:
        await channel.close()
        raise


def _linger_seconds(spec: SandboxSpec) -> float:
    """How long the supervisor waits for a line: for its worker to open another, or for another worker."""
    return spec.linger_seconds or RECONNECT_SECONDS


def _archives(spec: SandboxSpec, image: Image, mode: int) -> Mapping[str, bytes]:
    """What the container's volumes are filled with; `mode` is the supervisor's. Raises SandboxUnavailable."""
    program = box.binary(image.architecture).read_bytes()
    archives = {containers.BOX_DIR: containers.archive({"box": program}, mode)}
    if spec.readonly_files:
        files = {path[len(spec.verify_dir) + 1 :]: data for path, data in spec.readonly_files.items()}
        archives[spec.verify_dir] = containers.archive(files, containers.FILE_MODE)
    return archives


def _setup(spec: SandboxSpec, image: Image, way_out: Egress | None) -> Setup:
    work = containers.work_dir(spec, image)
    own = {"HOME": containers.TMP_DIR, "ZUBBLE_WORK": work, "ZUBBLE_VERIFY": spec.verify_dir}
    tops = {folder.split("/")[1] for folder in (work, spec.verify_dir, *spec.scratch)}
    return Setup(
        mode="namespace",
        folders={**{top: f"/{top}" for top in sorted(tops)}, "tmp": containers.TMP_DIR, "work": work},
        env={**commands.BASE_ENV, **image.env, **own, **(way_out.env if way_out else {})},
        limits=False,
        oom=_OOM_FILES,
        forward=(egress.PORT, egress.INSIDE_SOCKET) if way_out else (0, ""),
        grace_seconds=GRACE_SECONDS + RECONNECT_SECONDS,
        linger_seconds=_linger_seconds(spec),
    )


async def _begin_with(sandbox: Sandbox, beginning: bytes) -> None:
    try:
        await sandbox.restore(beginning)
    except (OSError, ValueError) as unfit:
        raise JobError(f"The work tree of the image cannot be put in place: {unfit}.") from unfit
