"""The trial journal in a file: what was tried at one task, over any number of runs (Z19, Z24)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from zubble_queue import whole_files
from zubble_queue.contracts import identity
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.sandbox import CommandResult
from zubble_queue.errors import BadInput
from zubble_worker import journal

_ENTRIES: Final = TypeAdapter(list[JournalEntry])
_TASK_FILE: Final = ".zubble/task"
_TOLD: Final = 20


class Journal:
    """Kept in `WORK_DIR/.zubble/journal.json`; an entry is on the disk before `record` returns.

    Args:
        work_dir: A folder of this machine.

    Raises:
        BadInput: The file that is there is no journal.
    """

    def __init__(self, work_dir: str | os.PathLike[str]) -> None:
        self.path = Path(work_dir) / journal.JOURNAL_FILE
        self._task = Path(work_dir) / _TASK_FILE
        self._entries = self._read()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Oldest first."""
        return tuple(self._entries)

    def begin(self, task: str) -> None:
        """What was tried at another task is cleared; at this one it is kept."""
        digest = identity.sha256(task.encode("utf-8", "surrogatepass"))
        known = self._task.read_text() if self._task.exists() else ""
        if known != digest:
            self.clear()
            whole_files.write(self._task, digest.encode())

    def record(self, command: str, observation: CommandResult, note: str | None = None) -> JournalEntry:
        """Keep how a command ended; its category is found in its text."""
        step = len(self._entries) + 1
        entry = journal.entry(step, command, observation, note, time.time())
        self.add(entry)
        return entry

    def add(self, entry: JournalEntry) -> None:
        """Keep an entry."""
        self._entries.append(entry)
        whole_files.write(self.path, journal.to_file(self._entries))

    def summary(self) -> str:
        """The last trials for a fresh context, grouped by category; empty where nothing was tried."""
        return journal.render(self._entries[-_TOLD:])

    def clear(self) -> None:
        """Forget every trial."""
        self._entries.clear()
        self.path.unlink(missing_ok=True)

    def _read(self) -> list[JournalEntry]:
        try:
            return _ENTRIES.validate_python(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, ValidationError) as broken:
            raise BadInput(
                [f"{self.path} is not a journal; move it away, or name another folder."]
            ) from broken
