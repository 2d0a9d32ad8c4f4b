"""Reads our own event logs."""

from __future__ import annotations

from collections.abc import Iterable

from zubble_queue.contracts.event import Event
from zubble_queue.trajectories.branch import kept_branch
from zubble_queue.trajectories.content import ended
from zubble_queue.trajectories.run import RunStep, fold
from zubble_queue.trajectories.steps import Call, End, Step, Trajectory


def read(events: Iterable[Event]) -> Trajectory:
    """Raises KeyError, TypeError or ValueError for events that no loop has written."""
    steps: list[Step] = []
    reached = 0
    for step in fold(kept_branch(events)).steps:
        reached = max(reached, int((step.action or {}).get("plan_step_id") or 0))
        steps.append(_step(step, reached))
    return Trajectory("zubble", tuple(steps))


def _step(step: RunStep, reached: int) -> Step:
    said = [
        (reply.text, reply.reasoning, tuple(arguments for _, arguments in reply.tool_calls))
        for reply in step.replies
    ]
    last = said[-1] if said else ("", "", ())
    share = step.replies[-1].prompt_share if step.replies else None
    rewards = [check.get("reward") for check in step.checks]
    scores = [float(reward) for reward in rewards if isinstance(reward, int | float)]
    return Step(
        step.number,
        *last,
        replies=tuple(said[:-1]),
        calls=(Call(step.tool, step.arguments, *_result(step), step.fingerprint),) if step.tool else (),
        bad_replies=len(step.format_errors),
        unusable=step.action is None and bool(step.format_errors),
        plan_step=reached,
        prompt_share=share,
        score=scores[-1] if scores else None,
        rejected=step.kind == "submit" and any(check["verdict"] != "passed" for check in step.checks),
        cleared=step.reset is not None,
    )


def _result(step: RunStep) -> tuple[str, End]:
    """What the call printed, and how it ended; `infra` where nobody knows."""
    if step.denied:
        return "", "denied"
    if step.verdict != "allow":
        return "", "refused"
    if step.result is None:
        return "", "infra"
    output = f"{step.result.get('stdout', '')}\n{step.result.get('stderr', '')}"
    code = step.result.get("exit_code")
    if step.result.get("timed_out"):
        return output, "timeout"
    return output, "failed" if code is None else ended(code)
