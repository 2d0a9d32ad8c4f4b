"""What agents changed, written to files: a patch and a tar of the changed files for each task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from zubble_queue.errors import InfraError
from zubble_queue.formats.export import Row

FILE_NAMES: Final = {"patch": "changes.patch", "changed_files": "changed_files.tar"}
"""By the name of the artifact."""


class Folders:
    """Writes the edits of each row to a folder of its own, named by its task id.

    Args:
        folder: Made when the first task has any.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.written = 0
        """Tasks whose agents changed something."""
        self.missing = 0
        """Artifacts that a row names and that were not to be had."""

    async def filled(self, rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
        """The rows, each handed on when its edits are written. Raises OSError when they cannot be."""
        async for row in rows:
            self.written += await self._write(row)
            yield row

    async def _write(self, row: Row) -> bool:
        folder = self._folder / row.view.task_id
        named = {name: row.ending.artifacts[name] for name in FILE_NAMES if name in row.ending.artifacts}
        for name, ref in named.items():
            try:
                data = await row.artifacts.aget(ref)
            except InfraError:
                self.missing += 1
                continue
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE_NAMES[name]).write_bytes(data)
        return bool(named)
