"""A loop as it was asked for, and what it asks of each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zubble_queue import registry
from zubble_queue.artifacts import reference
from zubble_queue.cli import running
from zubble_queue.cli.loop_record import LoopRecord
from zubble_queue.cli.loop_views import Limits
from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import ATTACHED, BlobRef, TaskEnvelope
from zubble_queue.contracts.journal import JournalEntry
from zubble_queue.contracts.model import estimate_tokens
from zubble_queue.contracts.submission import Parcel, TaskDefaults
from zubble_queue.formats.task_line import TaskLine

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.settings import Settings

DONE: Final = "<done>"
"""The claim to be done in the text protocol; `submit` is the same in JSON (C7)."""
_TEXT: Final = frozenset({"text", "swe"})
"""Protocols whose replies are text."""


@dataclass(frozen=True)
class Order:
    """A loop as asked for on the command line."""

    defaults: TaskDefaults
    settings: Settings
    endpoint: ModelConfig | None
    task: str
    verify: str | None
    signal: str | None
    """What claims completion; None where the check alone decides."""
    plan: str
    work: Path
    limits: Limits
    anew: bool
    again: str
    """The command that goes on with it."""

    @property
    def goal(self) -> str:
        return identity.sha256(
            identity.canonical_json([running.text_of(self.task), self.verify, self.signal])
        )

    @property
    def attached(self) -> bool:
        return self.defaults.sandbox.backend == ATTACHED


def parcel(
    order: Order, record: LoopRecord, tried: Sequence[JournalEntry], snapshot: bytes | None = None
) -> Parcel:
    """The task of the next iteration.

    Args:
        order: The loop.
        record: How far it is.
        tried: In all iterations so far, oldest first.
        snapshot: What the work tree begins with; None where it has its own.

    Raises:
        BadInput: One sentence per problem.
    """
    number, text = len(record.iterations) + 1, running.text_of(order.task)
    given = running.parcels_of(
        text,
        replace(order.defaults, batch=record.name, budget=order.limits.budget(record)),
        further=_brief(order, record, tried, text),
        id="loop",
        preflight="once" if number == 1 and order.signal is None else "off",
        repeats=number,
        **running.done_when(order.verify),
    )[-1]
    return given if snapshot is None else _with_tree(given, snapshot)


def _brief(order: Order, record: LoopRecord, tried: Sequence[JournalEntry], text: str) -> str:
    parts = registry.load("service", "iterations")
    about = parts.Brief(
        number=len(record.counted) + 1,
        of=order.limits.max_iterations,
        plan=order.plan,
        signal=None if order.signal == DONE else order.signal,
        text_replies=order.defaults.protocol in _TEXT,
        last_report=record.iterations[-1].report if record.iterations else "",
    )
    room = TaskLine.model_fields["context_budget_tokens"].default - estimate_tokens(text)
    fitting = replace(about, room_tokens=min(about.room_tokens, max(room // 2, 0)))
    brief: str = parts.brief(fitting, tried)
    return brief


def _with_tree(parcel: Parcel, snapshot: bytes) -> Parcel:
    blob = BlobRef(ref=reference(snapshot), size=len(snapshot))
    values = {**parcel.envelope.model_dump(), "work_tree": blob}
    return Parcel(TaskEnvelope.model_validate(values), {**parcel.blobs, blob.ref: snapshot})
