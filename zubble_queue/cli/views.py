"""Records as JSON values and as lines for people."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zubble_queue.cli.report import Exit, duration, plain, usd
from zubble_queue.contracts import failure
from zubble_queue.contracts.ending import MICRO, Ending, Usage
from zubble_queue.contracts.record import BatchView, PastRound, TaskView

if TYPE_CHECKING:
    from zubble_queue.contracts.event import Event
    from zubble_queue.contracts.question import Asked
    from zubble_queue.contracts.tuning import Tuning
    from zubble_queue.scoring import Score

CEILINGS = frozenset({"limit:batch_spend", "limit:tenant_spend"})
_SHOWN_CHARS = 160
_SCORES_SHOWN = 10


def exit_code(view: BatchView) -> Exit:
    """What a batch that has ended means to a script."""
    if CEILINGS & view.outcomes.keys() or (view.ceiling_reached and view.sealed < view.total):
        return Exit.CEILING
    verified = view.outcomes.get("verified", 0)
    return Exit.DONE if verified == view.total else Exit.NOT_ALL_VERIFIED


def tokens(usage: Usage) -> dict[str, int]:
    return {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
        "total": usage.tokens,
    }


def seconds(phases: Mapping[str, float]) -> dict[str, float]:
    """Time by phase, with the unit in the name."""
    return {f"{phase}_seconds": round(value, 6) for phase, value in sorted(phases.items())}


def batch_values(view: BatchView) -> dict[str, Any]:
    return {
        "batch": view.info.name,
        "state": view.state,
        "model": view.info.model,
        "source": view.info.source,
        "total": view.total,
        "sealed": view.sealed,
        "states": dict(view.states),
        "outcomes": dict(view.outcomes),
        "spend_usd": view.usage.spend_micro_usd / MICRO,
        "calls": view.usage.calls,
        "tokens": tokens(view.usage),
        "tokens_saved": view.tokens_saved,
        "phases": seconds(view.phase_seconds),
        "requeues": view.requeues,
        "ceiling_reached": view.ceiling_reached,
        "created_at": view.created_at,
        "repeats": view.repeats,
        "weight": view.tuning.weight,
        "priority": view.tuning.priority,
        "concurrency": view.tuning.concurrency,
        "max_retries": view.tuning.max_retries,
    }


def batch_lines(view: BatchView) -> Iterator[str]:
    yield f"Batch {view.info.name}: {view.state}, {view.sealed} of {view.total} tasks sealed"
    for name, count in sorted(view.outcomes.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {count:6}  {name}"
    waiting = {state: count for state, count in view.states.items() if count and state != "sealed"}
    for name, count in waiting.items():
        yield f"  {count:6}  ({name})"
    if view.states.get("awaiting_human"):
        yield f"  some wait for a person: zubble task ls {view.info.name} --state awaiting_human"
    yield (
        f"  spent {usd(view.usage.spend_micro_usd / MICRO)} in {view.usage.calls} calls and "
        f"{view.usage.tokens} tokens; {view.tokens_saved} tokens saved by cuts"
    )
    if view.phase_seconds:
        phases = ", ".join(f"{name} {duration(value)}" for name, value in sorted(view.phase_seconds.items()))
        yield f"  time in all tasks: {phases}"
    if view.ceiling_reached and view.sealed < view.total:
        account = (
            f"batch/{view.info.name}"
            if view.ceiling_reached == "batch_spend"
            else f"tenant/{view.info.tenant}"
        )
        yield f"  the ceiling of {account} is reached; raise it with: zubble budget set {account} USD"
    if view.requeues:
        yield f"  {view.requeues} attempts were handed over or lost and taken up again"


def tuning_line(tuning: Tuning) -> str:
    cap = f"at most {tuning.concurrency} tasks at the same time" if tuning.concurrency else "no cap"
    retries = {0: "no retries", 1: "1 retry"}.get(tuning.max_retries, f"{tuning.max_retries} retries")
    return f"weight {tuning.weight:g}, priority {tuning.priority}, {cap}, {retries}"


def score_lines(scores: Sequence[Score]) -> Iterator[str]:
    shown = [score for score in scores if score.k <= _SCORES_SHOWN or score.k == len(scores)]
    for score in shown:
        yield f"  pass@{score.k} {score.value:.3f} over {score.tasks} tasks"


def score_values(scores: Sequence[Score]) -> list[dict[str, float | int]]:
    return [{"k": score.k, "value": score.value, "tasks": score.tasks} for score in scores]


def ending_values(ending: Ending | None) -> dict[str, Any] | None:
    if ending is None:
        return None
    return {
        "outcome": ending.outcome,
        "stop": ending.stop.value,
        "fault": failure.of_ending(ending),
        "verdict": ending.verdict.value,
        "reward": dict(ending.reward) if isinstance(ending.reward, Mapping) else ending.reward,
        "reason": ending.reason,
        "report": ending.report,
        "evidence": dict(ending.evidence),
        "iterations_used": ending.iterations_used,
        "calls": ending.usage.calls,
        "tokens": tokens(ending.usage),
        "tokens_saved": ending.tokens_saved,
        "spend_usd": ending.spend_usd,
        "phases": seconds(ending.seconds),
        "files_touched": list(ending.files_touched),
        "lines_added": ending.lines_added,
        "lines_removed": ending.lines_removed,
        "isolation": ending.isolation,
        "memory": ending.memory.model_dump(mode="json"),
        "artifacts": dict(ending.artifacts),
    }


def task_values(view: TaskView) -> dict[str, Any]:
    return {
        "task_id": view.task_id,
        "batch": view.batch,
        "source_id": view.source_id,
        "repeat": view.repeat,
        "state": view.state.value,
        "outcome": view.outcome,
        "round": view.round,
        "attempts": view.attempt,
        "attempts_lost": view.abnormal_ends,
        "task_type": view.task_type,
        "model": view.model,
        "worker": view.worker,
        "content_hash": view.content_hash,
        "cancel_requested": view.cancel_requested,
        "created_at": view.created_at,
        "claimed_at": view.claimed_at,
        "sealed_at": view.sealed_at,
        "spend_usd": view.usage.spend_micro_usd / MICRO,
        "tokens": tokens(view.usage),
        "question": question_values(view.asked),
        "ending": ending_values(view.ending),
    }


def question_values(asked: Asked | None) -> dict[str, Any] | None:
    if asked is None:
        return None
    return {
        **asked.question.model_dump(mode="json", exclude={"unanswered"}),
        "unanswered": asked.question.unanswered.text,
        "asked_at": asked.asked_at,
        "answer_by": asked.answer_by,
        "answered_at": asked.answered_at,
        "answer": asked.answer.model_dump(mode="json") if asked.answer else None,
    }


def round_values(past: PastRound) -> dict[str, Any]:
    return {
        "round": past.round,
        "attempts": past.attempts,
        "worker": past.worker,
        "claimed_at": past.claimed_at,
        "sealed_at": past.sealed_at,
        "ending": ending_values(past.ending),
    }


def event_line(event: Event) -> str:
    """One line per event, safe for a terminal: time, attempt, type, and the beginning of its data."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.time))
    data = " ".join(f"{name}={_short(value)}" for name, value in event.data.items())
    return f"{clock} #{event.attempt} {event.type} {data}".rstrip()


def _short(value: Any) -> str:
    text = plain(value if isinstance(value, str) else str(value))
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
