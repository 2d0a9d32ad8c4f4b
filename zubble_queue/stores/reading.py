"""Reading the store: batches, tasks, events, journals, workers. Nothing here writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.record import BatchView, Checkpoint, TaskState, TaskView, WorkerInfo
from zubble_queue.errors import BadInput, UnknownName
from zubble_queue.stores import codec
from zubble_queue.stores.connection import Connection, StoreOptions
from zubble_queue.stores.keys import Keys

PAGE: Final = 500
"""Tasks per round trip, and per script call: about 15 ms of the server's time."""
NAMES_SHOWN: Final = 20
"""The most names an UnknownName lists, newest batches first."""
_MATCHES_SHOWN: Final = 5
LANE_SPAN: Final = 1 << 32
"""Scores of waiting tasks between one lane, which is one need of a batch, and the next; as in common.lua."""


class Reading(Connection):
    """Views are taken at one moment each; a list of them is not one moment."""

    def __init__(self, client: Any, keys: Keys, options: StoreOptions, where: str) -> None:
        super().__init__(client, keys, options, where)
        self._changes_seen: dict[str, str] = {}

    async def batch(self, name: str) -> BatchView:
        """Raises UnknownName."""
        row = await self._do("HGETALL", self._keys.batch(name))
        if not row:
            raise await self._unknown_batch(name)
        self._changes_seen[name] = row.get("changes", "0")
        return codec.batch_view(row, await self._do("HGET", self._keys.tenant(_tenant(row)), "reached"))

    async def batches(self) -> list[BatchView]:
        """All that are remembered, oldest first."""
        names = await self._batch_names()
        rows = await self._pipe([("HGETALL", self._keys.batch(name)) for name in names])
        rows = [row for row in rows if row]
        reached = await self._pipe([("HGET", self._keys.tenant(_tenant(row)), "reached") for row in rows])
        return [codec.batch_view(row, limit) for row, limit in zip(rows, reached, strict=True)]

    async def wait_for_change(self, batch: str, timeout_seconds: float) -> None:
        """Return when a task changed its state since `batch` was last read here, or at the timeout."""
        with self._seam():
            async with self._client.pubsub() as channel:
                await channel.subscribe(self._keys.changes(batch))
                changes = await self._do("HGET", self._keys.batch(batch), "changes") or "0"
                if changes != self._changes_seen.setdefault(batch, changes):
                    return
                await _first_message(channel, timeout_seconds)

    async def task(self, task_id: str) -> TaskView:
        """Raises UnknownName."""
        views = await self._views([task_id])
        if not views:
            raise UnknownName("task", task_id, ())
        return views[0]

    async def find(self, text: str, batch: str | None = None) -> TaskView:
        """The one task meant by an id, the beginning of an id, or a source id.

        Raises:
            UnknownName: No such batch or task.
            BadInput: Several are meant; some of them are named.
        """
        if batch is not None:
            await self.batch(batch)
        names = [batch] if batch is not None else await self._batch_names()
        exact = dict.fromkeys([text, *(identity.task_id(name, text, 1) for name in names)])
        found = [view for view in await self._views(list(exact)) if view.batch in names]
        if not found:
            found = await self._views(await self._ids_beginning_with(text, names))
        if not found:
            raise UnknownName("task", text, await self._some_sources(names))
        if len(found) > 1:
            shown = ", ".join(f"{view.task_id} in {view.batch}" for view in found[:_MATCHES_SHOWN])
            raise BadInput(
                [f"{text!r} may be any of {len(found)} tasks ({shown}); say more, or name a batch."]
            )
        return found[0]

    async def tasks(
        self, batch: str, *, state: TaskState | None = None, outcome: str | None = None
    ) -> AsyncIterator[TaskView]:
        """A batch's tasks in the order of submission. Raises UnknownName."""
        await self.batch(batch)
        after = "0"
        while page := await self._members(batch, after):
            after = page[-1][1]
            for view in await self._views([task_id for task_id, _ in page]):
                if state in {None, view.state} and outcome in {None, view.outcome}:
                    yield view

    async def endings(self, batch: str) -> AsyncIterator[tuple[str, str, str | None]]:
        """Task id, source id and outcome (None before the seal) of a batch's tasks. Raises UnknownName."""
        await self.batch(batch)
        after = "0"
        while page := await self._members(batch, after):
            after = page[-1][1]
            ids = [task_id for task_id, _ in page]
            rows = await self._pipe([("HMGET", self._keys.task(id_), "source_id", "outcome") for id_ in ids])
            for task_id, (source_id, outcome) in zip(ids, rows, strict=True):
                if source_id is not None:
                    yield task_id, source_id, outcome

    async def waiting_by_need(self, batch: str) -> dict[str, int]:
        """How many of a batch's tasks wait, by the key of what they need. Raises UnknownName."""
        await self.batch(batch)
        key, waiting = self._keys.batch(batch), self._keys.batch(batch, "waiting")
        lanes = range(int(await self._do("HGET", key, "lanes") or 0))
        found = await self._pipe([("HGET", key, f"need:{lane}") for lane in lanes])
        counts = await self._pipe(
            [("ZCOUNT", waiting, lane * LANE_SPAN, f"({(lane + 1) * LANE_SPAN}") for lane in lanes]
        )
        return {need: int(count) for need, count in zip(found, counts, strict=True) if count}

    async def envelope(self, task_id: str) -> TaskEnvelope:
        """Raises UnknownName, or BadInput where somebody else has written it."""
        text = await self._do("HGET", self._keys.task(task_id), "envelope")
        if text is None:
            raise UnknownName("task", task_id, ())
        try:
            return codec.envelope(task_id, text)
        except ValueError as unreadable:
            raise BadInput([f"Task {task_id}: {unreadable}."]) from unreadable

    async def worklog(self, task_id: str) -> str:
        """The worklog entry of a sealed task (B9), "" before the seal. Raises UnknownName."""
        view, stored = await self.task(task_id), await self._do("HGET", self._keys.task(task_id), "worklog")
        if stored is not None or view.ending is None:
            return stored or ""
        return view.ending.output((await self.envelope(task_id)).task).worklog_entry

    async def events(self, task_id: str, *, after: int = 0, count: int = 1_000) -> list[Event]:
        """Live events behind the seq `after`; those that a checkpoint moved to a segment are not here."""
        entries = await self._run("events", task_id, after, count)
        return [Event.model_validate_json(entry) for entry in entries]

    async def latest_checkpoint(self, task_id: str) -> Checkpoint | None:
        """Of the round that runs; None where there is none yet."""
        text = await self._do("HGET", self._keys.task(task_id), "checkpoint")
        return Checkpoint.model_validate_json(text) if text else None

    async def journal(self, task_id: str) -> list[JournalEntry]:
        """Trials, oldest first."""
        entries = await self._do("LRANGE", self._keys.task(task_id, "journal"), 0, -1)
        return [JournalEntry.model_validate_json(entry) for entry in entries]

    async def workers(self) -> list[WorkerInfo]:
        """Those whose registration has not run out; `busy` counts the leases they hold, by the ledger."""
        ids = await self._do("ZRANGE", self._keys.workers, 0, -1)
        infos = await self._pipe([("GET", self._keys.worker(id_)) for id_ in ids])
        busy = await self._do("HGETALL", self._keys.busy)
        living = [WorkerInfo.model_validate_json(info) for info in infos if info]
        return [_with_busy(info, int(busy.get(info.worker_id, 0))) for info in living]

    async def leader(self, role: str) -> str | None:
        """Who holds a role now."""
        holder: str | None = await self._do("GET", self._keys.leader(role))
        return holder

    async def preflighted(self, content_hash: str) -> bool:
        """Whether this content has passed its preflight."""
        return bool(await self._do("EXISTS", self._keys.preflight(content_hash)))

    async def _views(self, ids: Sequence[str]) -> list[TaskView]:
        """Of those that exist, in order."""
        if not ids:
            return []
        rows = [("HMGET", self._keys.task(id_), *codec.VIEW_FIELDS) for id_ in ids]
        *found, leases = await self._pipe([*rows, ("ZMSCORE", self._keys.leases, *ids)])
        return [
            codec.task_view(id_, row, lease)
            for id_, row, lease in zip(ids, found, leases, strict=True)
            if row[0] is not None
        ]

    async def _members(self, batch: str, after: str) -> list[tuple[str, str]]:
        """A page of task ids with their ordinals, behind the ordinal `after`."""
        key = self._keys.batch(batch, "tasks")
        flat = await self._do("ZRANGEBYSCORE", key, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)
        return list(zip(flat[::2], flat[1::2], strict=True))

    async def _batch_names(self) -> list[str]:
        names: list[str] = await self._do("ZRANGE", self._keys.batches, 0, -1)
        return names

    async def _unknown_batch(self, name: str) -> UnknownName:
        return UnknownName("batch", name, (await self._batch_names())[-NAMES_SHOWN:])

    async def _ids_beginning_with(self, text: str, batches: Sequence[str]) -> list[str]:
        found: list[str] = []
        for name in batches:
            after = "0"
            while page := await self._members(name, after):
                after = page[-1][1]
                found += [id_ for id_, _ in page if id_.startswith(text)]
        return found

    async def _some_sources(self, batches: Sequence[str]) -> list[str]:
        pages = [await self._members(name, "0") for name in batches[-1:]]
        return [
            view.source_id
            for page in pages
            for view in await self._views([id_ for id_, _ in page[:NAMES_SHOWN]])
        ]


def _tenant(batch: codec.Row) -> str:
    return batch.get("tenant") or "default"


def _with_busy(info: WorkerInfo, busy: int) -> WorkerInfo:
    return info.model_copy(update={"busy": busy})


async def _first_message(channel: Any, timeout_seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        if await channel.get_message(ignore_subscribe_messages=True, timeout=left):
            return
