"""What Celery runs, and what Flower reads off it: the bridge from a pool thread to the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from zubble_queue.contracts.ending import Ending, Stop
from zubble_queue.contracts.envelope import Header
from zubble_worker.app import Doubled, Dropped
from zubble_worker.service import Service

_log = structlog.get_logger(__name__)
_FAILURES: Final = frozenset({Stop.INFRA, Stop.STUCK, Stop.INVALID})


class AttemptFailed(Exception):
    """What Flower shows as FAILURE; its text is the outcome alone, so nothing secret can be in it."""


class Body:
    """The body of `zubble.attempt`: hands the header to the loop's thread, waits, and says how it ended."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._loop = service, loop

    def __call__(self, header: Header) -> str:
        """The result for Flower. Raises Dropped or AttemptFailed."""
        try:
            done = asyncio.run_coroutine_threadsafe(self._service.run(header), self._loop).result()
        except Exception as error:  # noqa: BLE001 - the worker's edge: logged whole, shown scrubbed
            _log.exception("attempt failed unexpectedly", action="attempt_failed", task_id=header.task_id)
            raise AttemptFailed(f"infra: {type(error).__name__}") from None
        if done.how == "waiting":
            return done.cause
        if done.ending is None:
            raise (Doubled if done.cause == "doubled" else Dropped)(done.cause or done.how)
        return shown(done.ending)


def shown(ending: Ending) -> str:
    """`<outcome> $<spend> <n>-it`, in the state that tells the truth (design: section 8).

    Raises:
        AttemptFailed: With that text, where Flower shows FAILURE.
        Dropped: Where it shows REVOKED.
    """
    summary = f"{ending.outcome} ${ending.spend_usd:.4f} {ending.iterations_used}-it"
    if ending.stop is Stop.CANCELLED:
        raise Dropped(summary)
    if ending.stop in _FAILURES and ending.outcome != "verified":
        raise AttemptFailed(summary)
    return summary
