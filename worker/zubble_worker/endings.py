"""What an attempt's end comes to: the one record, made of what was stopped, judged, spent and changed."""

from __future__ import annotations

from zubble_queue.contracts import failure
from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.envelope import BlobRef, TaskEnvelope
from zubble_queue.contracts.memory import MemoryUse
from zubble_queue.contracts.record import Claim
from zubble_worker.books import AttemptBooks
from zubble_worker.salvage import Salvaged
from zubble_worker.stopping import Stopped
from zubble_worker.transcript import Transcript
from zubble_worker.workplace import Workplace


def compose(
    stopped: Stopped,
    checked: CheckResult | None,
    *,
    books: AttemptBooks,
    transcript: Transcript,
    place: Workplace | None,
    trajectory: BlobRef,
    saved: Salvaged,
) -> Ending:
    """The ending as the record holds it; `place` is None where no sandbox was opened."""
    envelope, changed = transcript.job.envelope, saved.changes
    opening = place.opening_seconds if place else 0.0
    notes = {
        "salvage": saved.note,
        "check": checked.error if checked else "",
        "signals": dict(transcript.watching.watch.fired),
    }
    return Ending(
        stop=stopped.stop,
        verdict=checked.verdict if checked else Verdict.NOT_RUN,
        reward=checked.reward if checked else None,
        reason=stopped.reason[:1_000],
        report=" ".join(stopped.report.split())[:2_000],
        evidence={**stopped.evidence, **{name: said for name, said in notes.items() if said}},
        usage=books.usage,
        iterations_used=transcript.step,
        tokens_saved=transcript.tokens_saved,
        seconds={"open": opening, **transcript.seconds, "wallclock": books.wallclock_seconds()},
        files_touched=changed.files,
        lines_added=changed.added,
        lines_removed=changed.removed,
        isolation=_isolation(envelope) if place else "",
        memory=MemoryUse(mode=envelope.memory, read=transcript.memory_read or ()),
        artifacts={"trajectory": trajectory.ref, **saved.artifacts},
    )


def _isolation(envelope: TaskEnvelope) -> str:
    """The backend, the container it went into, and each network that the worker's settings granted."""
    phases = {"": envelope.sandbox.network, " for verify": envelope.verify.network}
    granted = [f"network {network}{phase}" for phase, network in phases.items() if network != "none"]
    place = " ".join(filter(None, (envelope.sandbox.backend, envelope.sandbox.container)))
    return ", ".join([place, *granted])


def with_past(ending: Ending, claim: Claim) -> Ending:
    """A task whose retries are exhausted is stuck, and says so; its earlier ends are the evidence (1.13)."""
    if not claim.past:
        return ending
    evidence = {**ending.evidence, "past": [past.model_dump() for past in claim.past]}
    if claim.retries_left or not failure.may_be_tried_again(ending):
        return ending.model_copy(update={"evidence": evidence})
    reason = (
        f"max_retries={len(claim.past)} exhausted; the last attempt ended {ending.outcome}: {ending.reason}"
    )
    return ending.model_copy(update={"stop": Stop.STUCK, "reason": reason[:1_000], "evidence": evidence})
