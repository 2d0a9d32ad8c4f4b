"""Reads ATIF, Harbor's trajectory format, of any version 1."""

from __future__ import annotations

import json
from typing import Any

from zubble_queue.trajectories import content
from zubble_queue.trajectories.steps import Call, End, Step, Trajectory


def recognises(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and str(value.get("schema_version")).startswith("ATIF-v1")
        and isinstance(value.get("steps"), list)
    )


def read(value: dict[str, Any]) -> Trajectory:
    """Steps that were copied from another trajectory are left out.

    Raises KeyError, TypeError, ValueError or AttributeError where it is not as the format says.
    """
    steps = value["steps"]
    agent = [step for step in steps if step.get("source") == "agent" and not step.get("is_copied_context")]
    return Trajectory("atif", tuple(_step(number, step) for number, step in enumerate(agent, 1)))


def _step(number: int, step: dict[str, Any]) -> Step:
    results = (step.get("observation") or {}).get("results") or []
    called = step.get("tool_calls") or []
    return Step(
        number,
        content.text(step.get("message")),
        content.text(step.get("reasoning_content")),
        tuple(json.dumps(call.get("arguments"), ensure_ascii=False) for call in called),
        calls=tuple(_call(call, results, alone=len(called) == 1) for call in called),
        bad_replies=int(not called and bool(results)),
        unusable=not called and bool(results),
    )


def _call(call: dict[str, Any], results: list[dict[str, Any]], *, alone: bool) -> Call:
    """With its results: those that name it, and of a step's only call those that name none."""
    name = call.get("tool_call_id")
    own = [
        result
        for result in results
        if result.get("source_call_id") == name or (alone and not result.get("source_call_id"))
    ]
    output = "\n".join(content.text(result.get("content")) for result in own)
    end = next((end for result in own if (end := _end(result.get("extra") or {}))), None)
    return content.call(str(call["function_name"]), call.get("arguments"), output, end)


def _end(extra: dict[str, Any]) -> End | None:
    """As our own files say it; None where they do not."""
    if extra.get("refused"):
        return "refused"
    if extra.get("denied"):
        return "denied"
    if extra.get("timed_out"):
        return "timeout"
    code = extra.get("exit_code")
    return content.ended(code) if isinstance(code, int) else None
