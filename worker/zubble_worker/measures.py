"""What is done about a judgement: it is recorded, the view compacted, and more than a nudge is raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from zubble_queue.contracts.decisions import Deny
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.event import Event
from zubble_worker.observers.actions.facts import Signal
from zubble_worker.observers.actions.watch import Judgement
from zubble_worker.questions import Questions
from zubble_worker.stopping import Stopping

WHOLE_TURNS: Final = 4
"""The last turns, which compacting the view leaves whole."""


async def note(judgement: Judgement, record: Callable[..., Awaitable[Event]]) -> None:
    """Every signal is an event; one of context pressure compacts the view, here between two steps (C13)."""
    for signal in judgement.signals:
        await record("signal", **signal.as_dict())
        if signal.detector == "context-pressure":
            await record("view_compacted", step=signal.step, kept=WHOLE_TURNS, share=signal.count)


def enforce(judgement: Judgement) -> None:
    """Raises Stopping for a reset, which may become a stop; a guarded signal ends the run after the step."""
    if judgement.measure == "reset" and not judgement.blocked:
        strongest = judgement.signals[0]
        raise Stopping(judgement.stop, _reason(strongest), _evidence(strongest))


async def clear(signal: Signal, questions: Questions) -> None:
    """A guard was met: the run goes on where a person says so. Raises Stopping where none does."""
    reason = f"the guard {signal.detector} was met"
    question = f"{_reason(signal)}. Let the run go on? (step {signal.step})"
    if isinstance(await questions.permitted("guard", signal.detector, question), Deny):
        raise Stopping(Stop.BLOCKED, reason, _evidence(signal))


def _reason(signal: Signal) -> str:
    return f"{signal.detector}: {signal.text.split('. ')[0].rstrip('.')}"


def _evidence(signal: Signal) -> dict[str, object]:
    seen = {"detector": signal.detector, "count": signal.count, "threshold": signal.threshold}
    return {**seen, "step": signal.step, **signal.evidence}
