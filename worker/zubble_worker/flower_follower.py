"""Keeps what Flower shows in step with the records: events may be lost, and so may those who send them.

An attempt whose worker was killed sends no last event, and Flower would say STARTED for ever. So what it
shows as open is looked up now and then, and where the record has gone on, the missing event is made up for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from celery.states import PENDING, RECEIVED, STARTED

from zubble_queue.contracts.ending import Ending
from zubble_queue.contracts.record import TaskState, TaskView
from zubble_queue.errors import CannotStart, StoreUnavailable, UnknownName
from zubble_queue.settings import Settings
from zubble_queue.stores.redis import RedisStore
from zubble_worker.app import Dropped
from zubble_worker.tasks import AttemptFailed, shown

LOOK_SECONDS: Final = 5.0
"""Also how long an event may be under way behind its record: what is mended was wrong twice."""
_MOST: Final = 500
"""Looked up at once; the others have their turn in the next rounds."""
_CHUNK: Final = 50
_OPEN: Final = frozenset({PENDING, RECEIVED, STARTED})
_HELD: Final = frozenset({TaskState.RUNNING, TaskState.AWAITING_HUMAN})
LOST: Final = "lost: no word from its worker"

_log = structlog.get_logger(__name__)


class Records:
    """The records of an installation, reached when one is asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: RedisStore | None = None
        self._opening = asyncio.Lock()

    async def view(self, task_id: str) -> TaskView | None:
        """None where there is none. Raises StoreUnavailable or CannotStart."""
        try:
            return await (await self._opened()).task(task_id)
        except UnknownName:
            return None

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()

    async def _opened(self) -> RedisStore:
        async with self._opening:
            if self._store is None:
                assert self._settings.redis_url is not None
                self._store = await RedisStore.connect(
                    self._settings.redis_url.get_secret_value(), namespace=self._settings.namespace
                )
        return self._store


class Follower:
    """Runs in the loop that Flower's state belongs to.

    Args:
        view: Gives a task's record by its id.
        state: Flower's `EventsState`.
    """

    def __init__(self, view: Callable[[str], Awaitable[TaskView | None]], state: Any) -> None:
        self._view, self._state = view, state
        self._next = 0
        self._suspected: set[str] = set()

    async def run(self) -> None:
        """Look again and again, whatever happens; ends by being cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except (StoreUnavailable, CannotStart) as silent:
                _log.warning("the records cannot be read", action="follower_failed", cause=str(silent))

    async def look(self) -> int:
        """Mend what was shown wrongly at the last look, too; returns how many. Raises what `view` raises."""
        mended = 0
        turn = self._turn()
        for at in range(0, len(turn), _CHUNK):
            chunk = turn[at : at + _CHUNK]
            views = await asyncio.gather(*(self._view(_parts(task.uuid)[0]) for task in chunk))
            mended += sum(self._mend(task, view) for task, view in zip(chunk, views, strict=True))
        return mended

    def _turn(self) -> list[Any]:
        """Open attempts, each one looked at in some round."""
        opened = [
            task
            for task in list(self._state.tasks.data.values())
            if task.state in _OPEN and _parts(task.uuid)[0]
        ]
        self._suspected &= {task.uuid for task in opened}
        start = self._next if self._next < len(opened) else 0
        self._next = start + _MOST
        return opened[start : start + _MOST]

    def _mend(self, task: Any, view: TaskView | None) -> bool:
        """Send the event that is missing, if one is; the task may have ended while its record was read."""
        if task.state not in _OPEN:
            return False
        event = missing_event(_parts(task.uuid)[1], view, started=task.state == STARTED)
        if event is None:
            self._suspected.discard(task.uuid)
            return False
        if task.uuid not in self._suspected:
            self._suspected.add(task.uuid)
            return False
        worker = task.worker.hostname if task.worker else "nobody"
        common = {"uuid": task.uuid, "hostname": worker, "timestamp": time.time(), "clock": 0}
        self._state.event({**common, "local_received": 0, **event})
        return True


def missing_event(attempt: int, view: TaskView | None, *, started: bool) -> dict[str, Any] | None:
    """What Celery would have said when an attempt ended, by the task's record; None while it is going on.

    Args:
        attempt: Its number.
        view: The record; None where it is no more.
        started: Whether a worker took its message; one of a claimed attempt that nobody took was a double.
    """
    sealed = view is not None and view.state is TaskState.SEALED
    if view is None or (attempt > view.attempt and sealed) or (attempt <= view.attempt and not started):
        return _REVOKED
    if attempt == view.attempt and view.state is TaskState.AWAITING_HUMAN and view.lease_until is None:
        return {"type": "task-succeeded", "result": repr("awaiting_human")}
    if attempt > view.attempt or (attempt == view.attempt and view.state in _HELD):
        return None
    if attempt < view.attempt or view.ending is None:
        return _failed(LOST)
    return _of(view.ending)


def _of(ending: Ending) -> dict[str, Any]:
    try:
        return {"type": "task-succeeded", "result": repr(shown(ending))}
    except AttemptFailed as failed:
        return _failed(str(failed))
    except Dropped:
        return _REVOKED


_REVOKED: Final[dict[str, Any]] = {"type": "task-revoked", "terminated": False, "expired": False}


def _failed(text: str) -> dict[str, Any]:
    return {"type": "task-failed", "exception": repr(AttemptFailed(text))}


def _parts(message_id: str) -> tuple[str, int]:
    """Task and attempt of a message's id; no task where it is none of ours."""
    task_id, _, rest = message_id.partition(".")
    attempt, _, push = rest.partition(".")
    return (task_id, int(attempt)) if attempt.isdecimal() and push.isdecimal() else ("", 0)
