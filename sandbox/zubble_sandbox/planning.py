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
from zubble_queue.errors import JobError
from zubble_sandbox import commands, egress
from zubble_sandbox.cgroups import Cgroups, Limits
from zubble_sandbox.egress import Egress
from zubble_sandbox.opening import Plan, memory_file
from zubble_sandbox.records import Record, Records
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
        folders = self.cgroups.folders(record.token, limits(spec))
        return replace(record, groups=tuple(map(str, folders)))

    def hold(self, kept: ExitStack) -> HeldUid | None:
        """Another user for the sandbox of a worker that is root, given back with `kept`."""
        if self.uids is None:
            return None
        held = self.uids.take()
        kept.callback(held.give_back)
        return held

    def plan(
        self, spec: SandboxSpec, record: Record, held: HeldUid | None, way_out: Egress | None, fds: ExitStack
    ) -> Plan:
        """Descriptors for the new process are opened into `fds`. Raises OSError."""

        def given(data: bytes, name: str) -> int:
            fd = memory_file(data, name)
            fds.callback(os.close, fd)
            return fd

        placed = commands.placed_files(spec, _resolver(spec))
        files = [(path, given(data, "file")) for path, data in placed.items()]
        seccomp_fd = given(self.tools.filter, "filter")
        egress_fds = () if way_out is None else (_folder(way_out.folder, fds),)
        options = commands.bwrap_options(spec, self.tools.roots, files, seccomp_fd, *egress_fds)
        args_fd = given(commands.nul_separated(options), "args")
        box_fd = self.tools.open_box()
        fds.callback(os.close, box_fd)

        def argv(arguments: Sequence[str]) -> list[str]:
            program = (f"/proc/self/fd/{box_fd}", *arguments)
            return self.tools.command_line(args_fd, program, held, record.groups)

        return Plan(
            record=record,
            setup=replace(setup(spec), grouped=self.cgroups is not None),
            argv=argv,
            pass_fds=(args_fd, seccomp_fd, box_fd, *egress_fds, *(fd for _, fd in files)),
            kept_fds=() if held is None or not spec.linger_seconds else (held.lock_fd,),
            make_group=None
            if self.cgroups is None
            else partial(self.cgroups.make, record.token, limits(spec)),
        )


def limits(spec: SandboxSpec) -> Limits:
    """Of a sandbox as a whole: the memory of its processes, and that of its file systems on top."""
    files = spec.work_bytes + (_SIZED_FOLDERS + len(spec.scratch)) * spec.tmp_bytes
    return Limits(spec.memory_bytes + files + OWN_BYTES, spec.pids + OWN_PIDS, spec.cpus)


def setup(spec: SandboxSpec) -> Setup:
    """What the supervisor is told."""
    env, forward = commands.environment(spec), (0, "")
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
