"""Runs every detector over a stored trajectory, as over a run that is going on: `zubble replay`.

What a detector would have changed in a live run is left as it was: the trajectory goes on as it went.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from zubble_queue.trajectories.steps import Step, Trajectory
from zubble_worker.observers.actions.facts import Call, Signal, StepFacts
from zubble_worker.observers.actions.watch import Watch
from zubble_worker.observers.doom_loop import Verdict
from zubble_worker.observers.ladder import CUTTING
from zubble_worker.observers.repetition import RepetitionDetector
from zubble_worker.supposed_tree import SupposedTree

IN_STREAM: Final = "in-stream"
"""Under which name the detector of repetition in a stream is reported."""


Measure = Literal["none", "repair", "nudge", "refuse", "cut", "reset", "stop"]
"""What a live run would have done; `none` is for the record only."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One detector that spoke at one step."""

    detector: str
    step: int
    measure: Measure
    count: float
    threshold: float

    def as_dict(self) -> dict[str, Any]:
        """As `zubble replay --json` prints it."""
        return asdict(self)


def replay(trajectory: Trajectory) -> list[Firing]:
    """Everything that fires, in the order of the steps. Pure: no I/O, no clock."""
    watch, tree, bad_replies = Watch(), SupposedTree(), 0
    found: list[Firing] = []
    for step in trajectory.steps:
        bad_replies = bad_replies + step.bad_replies if step.unusable else 0
        found += _in_stream(step)
        if step.bad_replies:
            found.append(Firing("format-errors", step.number, "repair", step.bad_replies, 1))
        for facts, verdict in _facts(step, watch, tree, failed_repairs=max(bad_replies - 1, 0)):
            signals = watch.after(facts, verdict).signals
            found += [
                Firing(
                    signal.detector, step.number, _measure(signal, verdict), signal.count, signal.threshold
                )
                for signal in signals
            ]
        if step.cleared:
            watch.reset("context")
    return found


def _in_stream(step: Step) -> Iterator[Firing]:
    """The furthest rung of each reply, with what the rungs up to it order."""
    for text, reasoning, arguments in (*step.replies, (step.text, step.reasoning, step.arguments)):
        detector = RepetitionDetector()
        fired = [
            *detector.feed("reasoning", reasoning),
            *detector.feed("text", text),
            *(rung for argument in arguments for rung in detector.feed("tool", argument)),
            *detector.finish(),
        ]
        if fired:
            last = max(rung.threshold for rung in fired)
            measure: Measure = "cut" if any(rung.action in CUTTING for rung in fired) else "nudge"
            yield Firing(IN_STREAM, step.number, measure, last, last)


def _facts(
    step: Step, watch: Watch, tree: SupposedTree, *, failed_repairs: int
) -> Iterator[tuple[StepFacts, Verdict | None]]:
    """What the observers see of a step: once for each of its calls, with what they said before it."""
    whole = StepFacts(
        step.number,
        text=step.text,
        plan_step=step.plan_step,
        prompt_share=step.prompt_share,
        score=step.score,
        unfinished=step.rejected,
        format_errors=failed_repairs,
    )
    if not step.calls:
        yield whole, None
    for part, stored in enumerate(step.calls):
        call = Call(stored.arguments, tree.before(stored), stored.tool)
        verdict = watch.before(call)
        seen = replace(whole, call=call, end=stored.end, output=stored.output)
        yield seen if part == 0 else replace(seen, text="", prompt_share=None, unfinished=False), verdict


def _measure(signal: Signal, verdict: Verdict | None) -> Measure:
    """A format error at its limit, and the last refusal of a cycle, end a run."""
    if signal.detector == "format-errors" or (
        signal.detector == "tool-cycle" and verdict is not None and verdict.kind == "stop"
    ):
        return "stop"
    return signal.measure
