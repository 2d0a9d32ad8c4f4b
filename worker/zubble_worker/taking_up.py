"""Taking up the work of earlier attempts: their work tree, their events, and what the agent is told of it."""

from __future__ import annotations

from zubble_queue.contracts.question import Asked
from zubble_queue.contracts.sandbox import Sandbox
from zubble_queue.trajectories.branch import kept_branch
from zubble_worker import journal
from zubble_worker.case import Case
from zubble_worker.questions import record_answer, told
from zubble_worker.resuming import acted_on, interruption


async def take_up(case: Case, sandbox: Sandbox) -> None:
    """Go on where an earlier attempt was checkpointed, or say that there was one."""
    if case.claim.previous_end == "none":
        return
    point = case.claim.checkpoint
    if point and point.snapshot:
        await sandbox.restore(await case.tools.artifacts.aget(point.snapshot))
        events = acted_on(kept_branch(await case.books.past_events()))
        case.transcript.replay(events)
        at, past = events[-1].seq, interruption(events)
    else:
        at, past = 0, journal.render(await case.trials())
    answered = _answered(case)
    if answered and case.transcript.inquiry.due is None:
        past = f"{past} {told(answered)}".strip()
    text = (
        f"[harness] The environment was restarted at step {case.transcript.step}. Background processes "
        f"and files outside the work tree are gone.{' ' if past else ''}{past}"
    )
    await case.record(
        "restarted",
        resumed_from=at,
        step=case.transcript.step,
        text=text,
        cause=case.claim.previous_end,
        number=case.claim.lease.epoch - 1,
        spend_micro_usd=case.claim.usage.spend_micro_usd,
    )
    if answered:
        await record_answer(answered, case.transcript.step, case.record)


def _answered(case: Case) -> Asked | None:
    """What a person was asked and has answered, and the run has not heard yet."""
    asked, heard = case.claim.asked, case.transcript.inquiry.heard
    return asked if asked and asked.answer and asked.question.question_id not in heard else None
