"""Tasks that wait because no living worker has what they need, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from zubble_queue import registry
from zubble_queue.contracts.need import Need
from zubble_queue.errors import UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.envelope import TaskEnvelope
    from zubble_queue.contracts.record import WorkerInfo

_SHOWN: Final = 5


def check_backends(envelopes: Iterable[TaskEnvelope], workers: Iterable[WorkerInfo]) -> None:
    """Every backend must be installed here or known to a living worker. Raises UnknownName."""
    known = {*registry.names("sandbox"), *(name for worker in workers for name in worker.sandboxes)}
    for name in sorted({envelope.sandbox.backend for envelope in envelopes} - known):
        raise UnknownName("sandbox", name, known)


def unserved(waiting: Mapping[str, int], workers: Iterable[WorkerInfo]) -> dict[str, int]:
    """Of the tasks that wait, by the key of what they need: those that no worker is going to be given."""
    served = {need for worker in workers for need in worker.needs}
    return {need: count for need, count in waiting.items() if count and need not in served}


def lines(waiting: Mapping[str, int]) -> Iterator[str]:
    """One sentence for each of the first needs that nobody serves."""
    for key, count in list(waiting.items())[:_SHOWN]:
        tasks = "1 task waits" if count == 1 else f"{count} tasks wait"
        yield f"no living worker has {_words(Need.of(key))}; {tasks} for one"
    if len(waiting) > _SHOWN:
        yield f"and so it is with {len(waiting) - _SHOWN} more combinations"


def _words(need: Need) -> str:
    backend, _, strength = need.sandbox.partition(":")
    strong = f" at strength {strength!r} or more" if strength else ""
    return f"pool {need.pool!r}, sandbox {backend!r}{strong} and model {need.model!r} together"
