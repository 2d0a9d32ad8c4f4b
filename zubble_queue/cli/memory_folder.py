"""A folder that keeps memory across runs where no server does: one file of JSON lines per task type."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from zubble_queue import whole_files
from zubble_queue.contracts.memory import MEMORY_ENTRY_BYTES, MemoryEntry, namespace
from zubble_queue.errors import BadInput
from zubble_queue.stores.redis import RedisStore


class MemoryFolder:
    """What is in it was written by models and their commands, as all memory; it is quoted, never trusted.

    Args:
        folder: Made when it is first written to.
        task_type: Whose memory.
    """

    def __init__(self, folder: Path, task_type: str) -> None:
        self._file, self._task_type = folder / f"{task_type}.jsonl", task_type

    def entries(self) -> list[MemoryEntry]:
        """All that it holds. Raises BadInput, one sentence per line that is no entry of the task type."""
        try:
            lines = self._file.read_bytes().splitlines() if self._file.exists() else []
        except OSError as unreadable:
            raise BadInput([f"{self._file} cannot be read: {unreadable.strerror}."]) from unreadable
        found: list[MemoryEntry] = []
        problems: list[str] = []
        for number, line in enumerate(lines, 1):
            try:
                entry = MemoryEntry.model_validate_json(line)
            except ValidationError:
                entry = None
            if entry is None or entry.task_type != self._task_type or len(line) > MEMORY_ENTRY_BYTES:
                problems.append(f"{self._file}, line {number}: not an entry of task type {self._task_type}.")
            else:
                found.append(entry)
        if problems:
            raise BadInput(problems)
        return found

    async def bring(self, store: RedisStore) -> None:
        """Let the store know what the folder knows."""
        await store.remember(self._task_type, self.entries())

    async def take(self, store: RedisStore) -> None:
        """Let the folder know what the store knows: whole or not at all."""
        known = {entry.entry_id: entry for entry in self.entries()}
        known |= {entry.entry_id: entry for entry in await store.load_facts(namespace(self._task_type))}
        ordered = sorted(known.values(), key=lambda entry: entry.time)
        text = "".join(f"{entry.model_dump_json()}\n" for entry in ordered)
        whole_files.write(self._file, text.encode())
