"""Promises about what became of a tree since a snapshot."""

from __future__ import annotations

import os
from typing import Final

from zubble_queue.contracts.sandbox import MIB, SandboxProvider, TreeDiff
from zubble_sandbox.conformance.base import opened, output, promise, refused

_BEFORE: Final = """mkdir -p d/gone same
echo 1 >d/f; echo 1 >d/sly; echo 1 >d/gone/g; echo 1 >mode; echo 1 >kind; echo same >same/f
ln -s f d/l; touch -d 2001-02-03 d/sly"""
_ODD: Final = os.fsdecode(b"\xff")
_AFTER: Final = """echo 22 >d/f; echo 2 >d/sly; touch -d 2001-02-03 d/sly; touch same/f
chmod 755 mode; rm kind; mkdir kind; rm -r d/gone; ln -sf g d/l
mkdir new; echo >new/$(printf '\\377')
mkfifo pipe; mkdir .zubble; echo >.zubble/journal.json"""


@promise
async def a_difference_is_told_by_content(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        await output(sandbox, _BEFORE)
        before = await sandbox.snapshot()
        assert await sandbox.diff(before) == TreeDiff()
        await output(sandbox, _AFTER)
        found = await sandbox.diff(before)
        assert found.added == ("new", f"new/{_ODD}"), found
        assert found.changed == ("d/f", "d/l", "d/sly", "kind", "mode"), found
        assert found.deleted == ("d/gone", "d/gone/g"), found
        await sandbox.restore(before)
        assert await sandbox.diff(before) == TreeDiff()


@promise
async def a_difference_is_also_told_of_a_tree_too_large_for_a_snapshot(provider: SandboxProvider) -> None:
    async with opened(provider) as sandbox:
        before = await sandbox.snapshot()
        await output(sandbox, "truncate -s 30M sparse")
        with refused(ValueError):
            await sandbox.snapshot(max_bytes=16 * MIB)
        assert await sandbox.diff(before) == TreeDiff(added=("sparse",))
        with refused(ValueError):
            await sandbox.diff(b"no snapshot")
