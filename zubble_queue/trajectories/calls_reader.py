"""Reads the plainest trajectory: JSON lines, one tool call each, for whatever has no reader of its own."""

from __future__ import annotations

from typing import Any

from zubble_queue.trajectories import content
from zubble_queue.trajectories.steps import Step, Trajectory


def recognises(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("tool"), str) and "args" in value


def read(lines: list[Any]) -> Trajectory:
    """From `{"tool", "args", "exit_code", "output", "text"}`; only the first two are needed.

    Raises KeyError, TypeError, ValueError or AttributeError where a line is not like that.
    """
    return Trajectory("calls", tuple(_step(number, line) for number, line in enumerate(lines, 1)))


def _step(number: int, line: dict[str, Any]) -> Step:
    code = line.get("exit_code")
    end = content.ended(code) if isinstance(code, int) else None
    called = content.call(str(line["tool"]), line["args"], content.text(line.get("output")), end)
    return Step(number, content.text(line.get("text")), calls=(called,))
