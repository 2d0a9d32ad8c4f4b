"""Between the strings of Redis and our records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

from pydantic import ValidationError

from zubble_queue.contracts.budget import AccountKind, BudgetView
from zubble_queue.contracts.ending import MICRO, Ending, Usage
from zubble_queue.contracts.envelope import Header, TaskEnvelope
from zubble_queue.contracts.need import Need
from zubble_queue.contracts.question import Answer, Asked, Question
from zubble_queue.contracts.record import BatchInfo, BatchView, PastRound, TaskState, TaskView
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.contracts.tuning import Tuning

USAGE_FIELDS: Final = tuple(Usage.model_fields)
ASKED_FIELDS: Final = ("question", "asked", "answer_by", "answered", "answer", "unanswered")
VIEW_FIELDS: Final = (
    *(
        "state",
        "batch",
        "source_id",
        "repeat",
        "round",
        "epoch",
        "abnormal_ends",
        "task_type",
        "model",
        "hash",
    ),
    *("cancel", "worker", "created", "claimed", "sealed", "ending"),
    *ASKED_FIELDS,
    *(f"usage:{name}" for name in USAGE_FIELDS),
)
ENDING_BYTES: Final = 65_536
"""A longer ending loses its evidence, then all but the first files touched."""
_FILES_BYTES: Final = 32_768

Row = Mapping[str, str | None]


def seconds(microseconds: str | None) -> float | None:
    return int(microseconds) / MICRO if microseconds else None


def usage(values: Sequence[str | None]) -> Usage:
    """From the values of USAGE_FIELDS, in order."""
    return Usage(**{name: int(value or 0) for name, value in zip(USAGE_FIELDS, values, strict=True)})


def micro_usd(usd: float) -> int:
    """A ceiling in whole micro-USD, rounded down but never to nothing."""
    return max(1, int(Decimal(str(usd)) * MICRO))


@dataclass(frozen=True, slots=True)
class Letter:
    """An envelope as it is kept: written once, however often its text and hash are asked for."""

    envelope: TaskEnvelope
    text: str
    content_hash: str

    @classmethod
    def of(cls, envelope: TaskEnvelope) -> Letter:
        return cls(envelope, envelope.model_dump_json(), envelope.content_hash())


def task_arguments(letter: Letter) -> tuple[str, str, str, str]:
    """The four values of `add_tasks.lua`; in the first is what cannot contain a line end."""
    envelope = letter.envelope
    budget = envelope.budget
    facts = (
        envelope.task_id,
        str(envelope.repeat),
        letter.content_hash,
        envelope.task_type,
        str(envelope.version),
        str(budget.max_tokens),
        str(micro_usd(budget.max_spend_usd)),
        str(budget.max_wallclock_seconds),
        f"{envelope.pool}/{envelope.sandbox.need}/",
    )
    return "\n".join(facts), envelope.source_id, envelope.model, letter.text


def task_view(task_id: str, values: Sequence[str | None], lease_until: float | None) -> TaskView:
    """From the values of VIEW_FIELDS, in order, and the lease's score.

    The ending's usage is the ledger's: it also knows what lost attempts and unsettled calls cost.
    """
    row = dict(zip(VIEW_FIELDS, values, strict=True))
    settled = usage([row[f"usage:{name}"] for name in USAGE_FIELDS])
    ending = Ending.model_validate_json(row["ending"]) if row["ending"] else None
    return TaskView(
        task_id=task_id,
        batch=_text(row, "batch"),
        source_id=_text(row, "source_id"),
        repeat=_int(row, "repeat"),
        state=TaskState(_text(row, "state")),
        round=_int(row, "round"),
        attempt=_int(row, "epoch"),
        abnormal_ends=_int(row, "abnormal_ends"),
        task_type=_text(row, "task_type"),
        model=_text(row, "model"),
        content_hash=_text(row, "hash"),
        cancel_requested=row["cancel"] == "1",
        worker=_text(row, "worker"),
        created_at=_int(row, "created") / MICRO,
        claimed_at=seconds(row["claimed"]),
        sealed_at=seconds(row["sealed"]),
        lease_until=lease_until / MICRO if lease_until else None,
        usage=settled,
        ending=ending.model_copy(update={"usage": settled}) if ending else None,
        asked=asked([row[name] for name in ASKED_FIELDS]),
    )


def asked(values: Sequence[str | None]) -> Asked | None:
    """From the values of ASKED_FIELDS, in order."""
    question, at, by, answered_at, answer, unanswered = values
    if not question or not unanswered:
        return None
    return Asked(
        question=Question.model_validate({**json.loads(question), "unanswered": json.loads(unanswered)}),
        asked_at=seconds(at) or 0.0,
        answer_by=seconds(by) or 0.0,
        answered_at=seconds(answered_at),
        answer=Answer.model_validate_json(answer) if answer else None,
    )


def batch_view(row: Row, tenants_reached: str | None) -> BatchView:
    """From the whole hash of a batch, and its tenant's field `reached`."""
    states = _numbers(row, "state:")
    total = _int(row, "total")
    return BatchView.model_validate(
        {
            "info": BatchInfo.model_validate_json(_text(row, "info")),
            "state": _batch_state(row, done=0 < total <= states.get(TaskState.SEALED, 0)),
            "tuning": _tuning(row),
            "created_at": _int(row, "created") / MICRO,
            "total": total,
            "states": states,
            "outcomes": _numbers(row, "outcome:"),
            "usage": usage([row.get(f"usage:{name}") for name in USAGE_FIELDS]),
            "tokens_saved": _int(row, "tokens_saved"),
            "phase_seconds": {name: total / MICRO for name, total in _numbers(row, "phase:").items()},
            "on_ceiling": row.get("on_ceiling") or "pause",
            "ceiling_reached": row.get("reached") or tenants_reached,
            "repeats": _int(row, "repeats") or 1,
            "requeues": _int(row, "requeues"),
        }
    )


def _batch_state(row: Row, *, done: bool) -> str:
    stored = _text(row, "state")
    if stored == "open" and done:
        return "done"
    return "paused" if stored == "open" and row.get("paused") else stored


def _tuning(row: Row) -> Tuning:
    return Tuning(
        weight=float(row.get("weight") or 1),
        priority=_int(row, "priority"),
        concurrency=_int(row, "concurrency"),
        max_retries=_int(row, "max_retries"),
    )


def past_round(text: str) -> PastRound:
    """From an entry that `retry.lua` made."""
    raw = json.loads(text)
    settled = usage(raw["usage"])
    ending = Ending.model_validate_json(raw["ending"])
    return PastRound(
        round=raw["round"],
        attempts=int(raw["attempts"]),
        worker=raw["worker"],
        claimed_at=seconds(raw["claimed"]),
        sealed_at=seconds(raw["sealed"]),
        usage=settled,
        ending=ending.model_copy(update={"usage": settled}),
    )


def budget_view(kind: AccountKind, name: str, row: Row) -> BudgetView:
    """From the whole hash of a batch or tenant."""
    ceiling = row.get("ceiling")
    return BudgetView.model_validate(
        {
            "kind": kind,
            "name": name,
            "ceiling_micro_usd": int(ceiling) if ceiling else None,
            "settled_micro_usd": _int(row, "usage:spend_micro_usd"),
            "reserved_micro_usd": _int(row, "open_micro_usd"),
            "reached": "reached" in row,
            "on_ceiling": row.get("on_ceiling"),
            "by_model": _numbers(row, "spend:model:"),
            "by_outcome": _numbers(row, "spend:outcome:"),
        }
    )


def header(row: Sequence[Any]) -> Header | None:
    """From a row of `announce.lua`; None when the envelope is of a form this version cannot read.

    What the task needs is the record's word, not the envelope's: the message must reach a worker that was
    offered for it, which then looks whether both agree.
    """
    task_id, envelope, epoch, round_, push, key = row
    try:
        raw, need = json.loads(envelope), Need.of(key)
        return Header(
            task_id=task_id,
            batch=raw["batch"],
            source_id=raw["source_id"],
            repeat=raw["repeat"],
            attempt=int(epoch) + 1,
            round=int(round_),
            push=int(push),
            task_type=raw["task_type"],
            model=need.model,
            pool=need.pool,
            sandbox=need.sandbox,
            budget=LoopBudget.model_validate(raw["budget"]),
            labels=raw["labels"],
        )
    except (KeyError, TypeError, ValueError):
        return None


def envelope(task_id: str, text: str) -> TaskEnvelope:
    """What the record of a task holds. Raises ValueError with one sentence: whoever wrote it was not we."""
    try:
        read = TaskEnvelope.model_validate_json(text)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "it"
        reason = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"the envelope cannot be read: {field}: {reason}") from None
    if read.task_id != task_id:
        raise ValueError(f"the envelope is that of another task, {read.task_id}")
    return read


def ending_json(ending: Ending) -> str:
    """At most ENDING_BYTES long; what does not fit is named in the evidence."""
    text = _dump(ending)
    if len(text.encode()) <= ENDING_BYTES:
        return text
    omitted = {"omitted": "evidence"}
    text = _dump(ending.model_copy(update={"evidence": omitted}))
    if len(text.encode()) <= ENDING_BYTES:
        return text
    files = _first_files(ending.files_touched)
    omitted = {"omitted": f"evidence, and files_touched after the first {len(files)}"}
    return _dump(ending.model_copy(update={"evidence": omitted, "files_touched": files}))


def _first_files(paths: Sequence[str]) -> tuple[str, ...]:
    ends = accumulate(len(json.dumps(path)) + 1 for path in paths)
    return tuple(path for path, end in zip(paths, ends, strict=True) if end <= _FILES_BYTES)


def _dump(ending: Ending) -> str:
    return ending.model_dump_json(exclude={"usage"})


def _text(row: Row, field: str) -> str:
    return row.get(field) or ""


def _int(row: Row, field: str) -> int:
    return int(row.get(field) or 0)


def _numbers(row: Row, prefix: str) -> dict[str, int]:
    """Counters that are not zero, by what follows the prefix."""
    found = {field.removeprefix(prefix): _int(row, field) for field in row if field.startswith(prefix)}
    return {name: value for name, value in found.items() if value}
