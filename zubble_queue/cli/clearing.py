"""A task that ended as blocked by a guard is cleared: it goes on from its end (C27)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.question import Answer, Question
from zubble_queue.contracts.record import Checkpoint
from zubble_queue.errors import BadInput

if TYPE_CHECKING:
    from zubble_queue.cli.installation import Installation
    from zubble_queue.contracts.record import TaskView


async def clear(place: Installation, view: TaskView) -> None:
    """Begin the round that goes on. Raises BadInput where there is nothing to go on from."""
    ending = view.ending
    if ending is None or "detector" not in ending.evidence:
        raise BadInput(
            [f"Task {view.task_id} was not blocked by a guard; zubble batch retry begins it anew."]
        )
    if not {"trajectory", "work_tree"} <= ending.artifacts.keys():
        raise BadInput([f"Of task {view.task_id} too little was saved; zubble batch retry begins it anew."])
    log = await place.artifacts.aget(ending.artifacts["trajectory"])
    tree = await place.artifacts.aget(ending.artifacts["work_tree"])
    last = Event.model_validate_json(log.rstrip(b"\n").rpartition(b"\n")[2])
    checkpoint = Checkpoint(
        seq=last.seq,
        snapshot=BlobRef(ref=ending.artifacts["work_tree"], size=len(tree)),
        segments=(BlobRef(ref=ending.artifacts["trajectory"], size=len(log)),),
    )
    question = Question(
        question_id=secrets.token_hex(8),
        kind="approval",
        cause="guard",
        subject=str(ending.evidence["detector"]),
        text=ending.reason,
        unanswered=Answer.approved(),
    )
    await place.store.clear(view.task_id, checkpoint, question)
