"""Which of a task's events led to its present."""

from __future__ import annotations

from collections.abc import Iterable

from zubble_queue.contracts.event import Event


def kept_branch(events: Iterable[Event]) -> list[Event]:
    """The events that led to the present: what an attempt did after its last checkpoint died with it.

    A new round begins with nothing of the one before.
    """
    kept: list[Event] = []
    for event in events:
        if event.type == "retried":
            kept = []
        elif event.type == "restarted":
            kept = [past for past in kept if past.seq <= event.data["resumed_from"]]
        kept.append(event)
    return kept
