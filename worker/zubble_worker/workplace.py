"""Where one attempt works: its sandbox with the task's files in it, and the check that will judge them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import IO, Final, Self

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.envelope import FileEntry, TaskEnvelope
from zubble_queue.contracts.record import Claim
from zubble_queue.contracts.sandbox import MIB, Sandbox, SandboxSpec, TreeDiff
from zubble_queue.errors import JobError
from zubble_worker import worktree
from zubble_worker.check import SandboxChecker
from zubble_worker.policy import check_network, provider_for
from zubble_worker.sizes import snapshot_bytes
from zubble_worker.tools import Tools

_IN_MEMORY_BYTES: Final = 1_048_576
"""A larger snapshot of the untouched tree waits in a file for the end of its attempt."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """An open sandbox with the task's files, untouched yet."""

    sandbox: Sandbox
    checker: SandboxChecker
    before: IO[bytes]
    """A snapshot of the work tree as the agent found it."""
    opening_seconds: float

    @classmethod
    async def open(cls, claim: Claim, tools: Tools) -> Self:
        """Raises JobError (not allowed, files that do not fit) or SandboxUnavailable; leaves nothing then."""
        started = time.monotonic()
        envelope = claim.envelope
        provider = provider_for(envelope.sandbox, tools)
        check_network("verify", envelope.verify, tools)
        hidden = {entry.path: await tools.artifacts.aget(entry.blob) for entry in envelope.verify.files}
        sandbox = await provider.open(_spec(claim, tools))
        try:
            if envelope.work_tree is not None:
                await _begin_with(await tools.artifacts.aget(envelope.work_tree), sandbox)
            await _place(envelope.files, sandbox, tools.artifacts)
            before = await _untouched(sandbox)
        except BaseException:
            await sandbox.destroy()
            raise
        checker = SandboxChecker(provider, sandbox, envelope, hidden)
        return cls(sandbox, checker, before, time.monotonic() - started)

    async def snapshot(self) -> bytes:
        """The work tree now, everything in it standing still."""
        await self.sandbox.freeze()
        return await self.sandbox.snapshot(max_bytes=snapshot_bytes(self.sandbox.spec))

    async def diff(self) -> TreeDiff:
        """What became of the work tree since then; raises what `Sandbox.diff` does."""
        return await self.sandbox.diff(await asyncio.to_thread(self._beginning))

    def compared(self, tree: bytes, *, only: Collection[bytes] | None = None) -> worktree.Edits:
        """What differs in a snapshot of this place; blocks for up to a second.

        Args:
            tree: The snapshot.
            only: Of a part of the tree, the paths that it is about.
        """
        return worktree.compare(self._beginning(), tree, only=only)

    async def close(self) -> None:
        """End the sandbox and forget the untouched tree."""
        await self.sandbox.destroy()
        self.before.close()

    def _beginning(self) -> bytes:
        self.before.seek(0)
        return self.before.read()


async def _untouched(sandbox: Sandbox) -> IO[bytes]:
    try:
        tree = await sandbox.snapshot(max_bytes=snapshot_bytes(sandbox.spec))
    except ValueError as too_large:
        raise JobError(f"the work tree the task begins with is too large: {too_large}") from too_large
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by `close`
    file.write(tree)
    return file


def _spec(claim: Claim, tools: Tools) -> SandboxSpec:
    envelope: TaskEnvelope = claim.envelope
    return SandboxSpec(
        name=f"{claim.lease.task_id}.{claim.lease.epoch}",
        owner=tools.worker_id,
        memory_bytes=envelope.sandbox.memory_mb * MIB,
        work_bytes=envelope.sandbox.work_mb * MIB,
        pids=envelope.sandbox.pids,
        cpus=envelope.sandbox.cpus,
        image=envelope.sandbox.image,
        container=envelope.sandbox.container,
        work_dir=envelope.sandbox.work_dir,
        scratch=envelope.sandbox.scratch,
        env=dict(envelope.sandbox.env),
        network=envelope.sandbox.network,
        allowed_hosts=envelope.sandbox.allowed_hosts,
        allowed_ports=tools.network_ports,
        background=envelope.sandbox.background,
        max_life_seconds=envelope.budget.max_wallclock_seconds + envelope.ask.keep_seconds + 3_600.0,
    )


async def _begin_with(tree: bytes, sandbox: Sandbox) -> None:
    try:
        await sandbox.restore(tree)
    except (OSError, ValueError) as refused:
        raise JobError(f"the work tree the task begins with cannot be restored: {refused}") from refused


async def _place(files: tuple[FileEntry, ...], sandbox: Sandbox, artifacts: ArtifactStore) -> None:
    for entry in files:
        data = await artifacts.aget(entry.blob)
        try:
            await sandbox.write(entry.path, data, executable=entry.blob.executable)
        except OSError as refused:
            raise JobError(f"file {entry.path!r} cannot be placed in the work tree: {refused}") from refused
