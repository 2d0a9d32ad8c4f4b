"""Saving what an agent changed, whatever stopped it, as far as its sandbox still gives it away.

The tree is frozen before it is copied. Where it is too large as a whole, the files that differ from the
beginning are read one by one; where the sandbox is gone, the last checkpoint has to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.sandbox import FileInfo, Sandbox, TreeDiff
from zubble_queue.errors import SandboxUnavailable
from zubble_worker import snapshots, worktree
from zubble_worker.snapshots import Item
from zubble_worker.workplace import Workplace
from zubble_worker.worktree import Changes

LISTED: Final = 20_000
"""Files of a tree of which it is not known what differs."""
ALL: Final = 200_000
PRIVATE: Final = ".zubble"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What could be saved of an attempt."""

    changes: Changes = field(default_factory=Changes)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name to reference: work_tree, patch, changed_files; those that there are."""
    note: str = ""
    """Why it is not all of the tree as it was at the stop; empty where it is."""


class Salvage:
    """Saves one attempt's edits.

    Args:
        place: Where it works.
        artifacts: Where they are kept.
        seconds: How long the sandbox may take; the lease must outlive it.
    """

    def __init__(self, place: Workplace, artifacts: ArtifactStore, *, seconds: float) -> None:
        self._place, self._artifacts, self._seconds = place, artifacts, seconds

    async def judged(self) -> Salvaged:
        """Of the tree that was judged last, where that is the one at the stop."""
        tree = self._place.checker.snapshot
        return await self._saved(tree) if tree else await self.now(None)

    async def now(self, last: BlobRef | None) -> Salvaged:
        """Of the tree as it is, else of a part of it, else of the snapshot of the last checkpoint.

        Raises:
            InfraError: The artifact store is not to be had.
        """
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(deadline):
                tree = await self.snapshot()
        except ValueError as too_large:
            return await self._part(deadline, str(too_large))
        except (SandboxUnavailable, TimeoutError) as gone:
            return await self._past(last, str(gone) or "it was too slow")
        return await self._saved(tree)

    async def snapshot(self) -> bytes:
        """The tree as it is, everything in it standing still; raises what `Sandbox.snapshot` does."""
        return await self._place.snapshot()

    async def edits(self, tree: bytes) -> Mapping[str, str]:
        """The artifacts of a snapshot."""
        return (await self._saved(tree)).artifacts

    async def _part(self, deadline: float, too_large: str) -> Salvaged:
        note = f"{too_large}; only files up to {worktree.FILES_BYTES} bytes together were saved"
        try:
            diff = await self._diff(deadline)
            part = await _piecewise(self._place.sandbox, diff, deadline)
        except SandboxUnavailable as gone:
            return Salvaged(note=f"{too_large}; then: {gone}")
        gone_too = map(os.fsencode, diff.deleted if diff else ())
        return await self._saved(snapshots.write(part), note, only=part.keys() | set(gone_too))

    async def _diff(self, deadline: float) -> TreeDiff | None:
        """None where it cannot be told in half of the time that is left."""
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at((now + deadline) / 2):
                return await self._place.diff()
        except (ValueError, TimeoutError):
            return None

    async def _past(self, last: BlobRef | None, gone: str) -> Salvaged:
        note = f"the sandbox did not give its files away ({gone})"
        if last is None:
            return Salvaged(note=note)
        return await self._saved(await self._artifacts.aget(last), f"{note}; saved as of the last checkpoint")

    async def _saved(self, tree: bytes, note: str = "", *, only: Collection[bytes] | None = None) -> Salvaged:
        edits = await asyncio.to_thread(self._place.compared, tree, only=only)
        blobs = {
            "work_tree": tree if only is None else b"",
            "patch": edits.patch,
            "changed_files": edits.files,
        }
        kept = {name: (await self._artifacts.aput(data)).ref for name, data in blobs.items() if data}
        return Salvaged(edits.changes, kept, note)


async def _piecewise(sandbox: Sandbox, diff: TreeDiff | None, deadline: float) -> dict[bytes, Item]:
    """The regular files that fit and that there is time for, smaller ones first, empty ones last.

    Of those that differ from the beginning, where that is known.
    """
    found: dict[bytes, Item] = {}
    room, clock = worktree.FILES_BYTES, asyncio.get_running_loop().time
    files = filter(_is_worth_it, await sandbox.list(limit=LISTED if diff is None else ALL))
    if diff is not None:
        differ = {*diff.added, *diff.changed}
        files = filter(lambda file: file.path in differ, files)
    for file in sorted(files, key=lambda one: (not one.size, one.size)):
        if file.size > room or len(found) >= worktree.FILES or clock() > deadline:
            break
        try:
            data = await sandbox.read(file.path, max_bytes=file.size)
        except (OSError, ValueError):  # gone, unreadable, or grown since
            continue
        room -= len(data)
        found[file.path.encode("utf-8", "surrogateescape")] = Item(data, executable=bool(file.mode & 0o100))
    return found


def _is_worth_it(file: FileInfo) -> bool:
    return file.kind == "file" and file.path.partition("/")[0] != PRIVATE
