"""Reads SWE-agent's `.traj` files."""

from __future__ import annotations

from typing import Any

from zubble_queue.trajectories import content
from zubble_queue.trajectories.steps import Step, Trajectory


def recognises(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("trajectory"), list):
        return False
    turns = value["trajectory"]
    return all(isinstance(turn, dict) and "action" in turn and "observation" in turn for turn in turns)


def read(value: dict[str, Any]) -> Trajectory:
    """Raises KeyError, TypeError, ValueError or AttributeError where it is not as the format says."""
    steps = [_step(number, turn) for number, turn in enumerate(value["trajectory"], 1)]
    return Trajectory("swe-agent", tuple(steps))


def _step(number: int, turn: dict[str, Any]) -> Step:
    action, output = content.text(turn["action"]).strip(), content.text(turn["observation"])
    functions = [called["function"] for called in turn.get("tool_calls") or ()]
    return Step(
        number,
        content.text(turn.get("response")),
        arguments=tuple(content.text(function.get("arguments")) for function in functions),
        calls=(content.call("shell", action, output),) if action else (),
        bad_replies=int(not action),
        unusable=not action,
    )
