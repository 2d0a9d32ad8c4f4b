"""How one sandbox of bubblewrap is going to be opened on a machine that was looked at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox import commands, egress
from zubble_sandbox.cgroups import Cgroups, Limits
from zubble_sandbox.commands import bwrap_options, covering_files, placed_files
from zubble_sandbox.egress import Egress
from zubble_sandbox.images.entries import BadImage
from zubble_sandbox.images.store import Held, Images
from zubble_sandbox.opening import Plan, memory_file
from zubble_sandbox.records import Record, Records
from zubble_sandbox.roots import image_root
from zubble_sandbox.supervised import Setup
from zubble_sandbox.tools import Tools
from zubble_sandbox.uids import HeldUid, UidPool

OWN_BYTES: Final = 16 * MIB
"""For what is ours in a control group: bwrap, the supervisor, and what the kernel keeps for them."""
OWN_PIDS: Final = 1
"""Of a control group: bwrap itself. The supervisor counts as the sandbox's."""
_SIZED_FOLDERS: Final = 2
"""Those for temporary files and for shared memory."""
_RESOLVER: Final = Path("/etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a trial found to work here."""

    tools: Tools
    records: Records
    uids: UidPool | None
    """None for a worker that is not root."""
    cgroups: Cgroups | None
    no_limits: str
    """Why there are no control groups, as sentences; empty when there are."""

    def recorded(self, record: Record, spec: SandboxSpec) -> Record:
        """The record with the groups that are to be made. Raises JobError for what cannot be limited."""
        if spec.cpus is not None and (self.cgroups is None or self.cgroups.cpu is None):
            raise JobError(f"sandbox.cpus: processor time cannot be limited here. {self.no_limits}".rstrip())
        if self.cgroups is None:
            return record
        folders = self.cgroups.folders(record.token)
        return replace(record, groups=tuple(map(str, folders)))

    def hold(self, kept: ExitStack) -> HeldUid | None:
        """Another user for the sandbox of a worker that is root, given back with `kept`."""
        if self.uids is None:
            return None
        held = self.uids.take()
        kept.callback(held.give_back)
        return held

    def plan(self, spec: SandboxSpec, record: Record, use: Use, fds: ExitStack) -> Plan:
        """Descriptors for the new process are opened into `fds`.

        Args:
            spec: With its folders, resolved.
            record: Of the sandbox.
            use: What it was given.
            fds: Closed when it was started.

        Raises:
            OSError: one cannot be opened.
            JobError: the image has no place for a folder.
        """

        def given(data: bytes, name: str) -> int:
            fd = memory_file(data, name)
            fds.callback(os.close, fd)
            return fd

        root = self.tools.root if use.image is None else image_root(use.image, spec, fds)
        resolver = _resolver(spec)
        files = [(path, given(data, "file")) for path, data in placed_files(spec, root, resolver).items()]
        covers = [(path, given(data, "file")) for path, data in covering_files(spec, root, resolver).items()]
        seccomp_fd = given(self.tools.filter, "filter")
        egress_fd = None if use.way_out is None else _folder(use.way_out.folder, fds)
        options = bwrap_options(spec, root, files, seccomp_fd, egress_fd=egress_fd, cover_fds=covers)
        args_fd = given(commands.nul_separated(options), "args")
        box_fd = self.tools.open_box()
        fds.callback(os.close, box_fd)
        needed = (args_fd, seccomp_fd, box_fd, egress_fd, *(top.fd for top in root.tops))

        def argv(arguments: Sequence[str]) -> list[str]:
            program = (f"/proc/self/fd/{box_fd}", *arguments)
            return self.tools.command_line(args_fd, program, use.user, record.groups)

        return Plan(
            record=record,
            setup=replace(setup(spec, use.image), grouped=self.cgroups is not None),
            argv=argv,
            pass_fds=(*(fd for fd in needed if fd is not None), *(fd for _, fd in (*files, *covers))),
            kept_fds=use.locks if spec.linger_seconds else (),
            make_group=None
            if self.cgroups is None
            else partial(self.cgroups.make, record.token, limits(spec)),
        )


@dataclass(frozen=True, slots=True)
class Use:
    """What a sandbox is given until its end."""

    user: HeldUid | None
    image: Held | None
    way_out: Egress | None

    @property
    def locks(self) -> tuple[int, ...]:
        """Descriptors that keep others from having the same, or from removing it."""
        held = (self.user, self.image)
        return tuple(each.lock_fd for each in held if each is not None)


def hold_image(images: Images, spec: SandboxSpec, kept: ExitStack, *, others: bool) -> Held | None:
    """The image that a sandbox has as its root, given back with `kept`; None without one.

    Args:
        images: Those of this machine.
        spec: Names it.
        kept: Closed at the end of the sandbox.
        others: Whether the sandbox has another user than this process.

    Raises:
        JobError: it is not here, or for other machines.
        SandboxUnavailable: the user of the sandbox cannot get to it.
    """
    if spec.image is None:
        return None
    try:
        held = images.hold(spec.image)
    except BadImage as refused:
        raise JobError(str(refused)) from refused
    kept.callback(held.give_back)
    if others and (closed := images.closed_to_others()) is not None:
        raise SandboxUnavailable(
            f"{closed} is closed to the users of sandboxes, and the images are below it: set images_folder "
            "to a folder that every user may pass, or start the worker as another user than root."
        )
    return held


def limits(spec: SandboxSpec) -> Limits:
    """Of a sandbox as a whole: the memory of its processes, and that of its file systems on top."""
    files = spec.work_bytes + (_SIZED_FOLDERS + len(spec.scratch)) * spec.tmp_bytes
    return Limits(spec.memory_bytes + files + OWN_BYTES, spec.pids + OWN_PIDS, spec.cpus)


def setup(spec: SandboxSpec, image: Held | None) -> Setup:
    """What the supervisor is told of a spec with its folders, resolved."""
    env, forward = commands.environment(spec, None if image is None else image.image.env), (0, "")
    if spec.network == "allowlist":
        env, forward = {**env, **egress.ENV}, (egress.PORT, egress.INSIDE_SOCKET)
    return Setup("namespace", commands.folders(spec), env, forward=forward)


def _folder(path: Path, fds: ExitStack) -> int:
    """A descriptor to mount it by: as another user, the path to it leads nowhere."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    fds.callback(os.close, fd)
    return fd


def _resolver(spec: SandboxSpec) -> bytes:
    """How the host looks names up, where the sandbox has its network."""
    try:
        return _RESOLVER.read_bytes() if spec.network == "open" else b""
    except OSError:
        return b""
