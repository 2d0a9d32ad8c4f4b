"""Memory across runs, by task type; runs are added to it by their seal, or brought from a folder."""

from __future__ import annotations

from collections.abc import Iterable

from zubble_queue.contracts.memory import MEMORY_ENTRIES, MemoryEntry, MemoryView, namespace
from zubble_queue.errors import UnknownName
from zubble_queue.stores.reading import NAMES_SHOWN, Reading


class Remembering(Reading):
    """What is remembered may be read and forgotten by anybody who may use the store."""

    async def load_facts(self, facts_namespace: str) -> list[MemoryEntry]:
        """All entries of a namespace such as `memory:<task type>`, oldest first; one call (B5)."""
        return [MemoryEntry.model_validate_json(text) for text in await self._facts(facts_namespace)]

    async def memories(self) -> list[MemoryView]:
        """What is remembered, by task type."""
        flat = await self._do("ZRANGE", self._keys.memories, 0, -1, "WITHSCORES")
        times = dict(zip(flat[::2], flat[1::2], strict=True))
        found = [(name, await self._facts(namespace(name))) for name in sorted(times)]
        return [
            MemoryView(
                task_type=name,
                entries=len(texts),
                bytes=sum(len(text.encode()) for text in texts),
                newest=int(times[name]) / 1_000_000,
            )
            for name, texts in found
            if texts
        ]

    async def memory(self, task_type: str) -> list[MemoryEntry]:
        """What is remembered of one task type, oldest first.

        Raises:
            UnknownName: Nothing is; names those of which something is.
        """
        entries = await self.load_facts(namespace(task_type))
        if not entries:
            known = [view.task_type for view in await self.memories()]
            raise UnknownName("task type", task_type, known[:NAMES_SHOWN])
        return entries

    async def remember(self, task_type: str, entries: Iterable[MemoryEntry]) -> int:
        """Add entries of a task type that are not there yet, oldest first; returns how many were added."""
        known = {entry.entry_id for entry in await self.load_facts(namespace(task_type))}
        new = sorted(
            (entry for entry in entries if entry.entry_id not in known), key=lambda entry: entry.time
        )[-MEMORY_ENTRIES:]
        if new:
            texts = (entry.model_dump_json() for entry in new)
            await self._run("remember", task_type, MEMORY_ENTRIES, *texts)
        return len(new)

    async def forget(self, task_type: str, task: str | None = None) -> int:
        """Drop what is remembered of a task type, or only what came from one task.

        Args:
            task_type: Whose memory.
            task: A task id, or the id in the user's file; None means everything.

        Returns:
            How many entries are gone.

        Raises:
            UnknownName: Nothing is remembered of the type, or nothing from that task.
        """
        entries = await self.memory(task_type)
        dropped = [entry for entry in entries if task in (None, entry.task_id, entry.source_id)]
        if not dropped:
            sources = dict.fromkeys(entry.source_id for entry in entries)
            raise UnknownName("task", task or "", list(sources)[-NAMES_SHOWN:])
        ids = [entry.entry_id for entry in dropped]
        return int(await self._run("forget", task_type, *ids))

    async def _facts(self, facts_namespace: str) -> list[str]:
        texts: list[str] = await self._do("LRANGE", self._keys.facts(facts_namespace), 0, -1)
        return texts
