"""Reads OpenHands' event lists: a bare list, or a line of its output with `history`."""

from __future__ import annotations

import json
from typing import Any, Final

from zubble_queue.trajectories import content
from zubble_queue.trajectories.steps import Call, End, Step, Trajectory

_NO_CALLS: Final = frozenset({"system", "message", "recall", "think", "change_agent_state", "condensation"})
_HIDDEN: Final = frozenset({"system", "recall", "change_agent_state", "condensation"})
"""Actions that the model did not make."""
_BESIDE: Final = frozenset(
    {"thought", "blocking", "is_static", "hidden", "confirmation_state", "security_risk", "timeout", "cwd"}
)
"""Arguments that say nothing about what is done."""


def recognises(value: Any) -> bool:
    events = _events(value)
    return isinstance(events, list) and any(
        isinstance(event, dict) and "source" in event and ("action" in event or "observation" in event)
        for event in events
    )


def _events(value: Any) -> Any:
    return value.get("history") if isinstance(value, dict) else value


def read(value: Any) -> Trajectory:
    """Raises KeyError, TypeError, ValueError or AttributeError where it is not as the format says."""
    steps: list[Step] = []
    events = _events(value)
    for at, event in enumerate(events):
        if event.get("source") == "agent" and event.get("action", "system") not in _HIDDEN:
            after = events[at + 1] if at + 1 < len(events) else {}
            steps.append(_step(len(steps) + 1, event, after if "observation" in after else {}))
    return Trajectory("openhands", tuple(steps))


def _step(number: int, event: dict[str, Any], seen: dict[str, Any]) -> Step:
    action, arguments = str(event["action"]), dict(event.get("args") or {})
    spoken = content.text(arguments.get("thought") or arguments.get("content"))
    if action in _NO_CALLS:
        return Step(number, spoken)
    return Step(number, spoken, arguments=(json.dumps(arguments),), calls=(_call(action, arguments, seen),))


def _call(action: str, arguments: dict[str, Any], seen: dict[str, Any]) -> Call:
    output, end = content.text(seen.get("content")), _end(seen)
    own = {name: value for name, value in arguments.items() if name not in _BESIDE and value is not None}
    return content.call(action, own, output, end)


def _end(seen: dict[str, Any]) -> End:
    if seen.get("observation") == "error":
        return "failed"
    extras = seen.get("extras") or {}
    code = (extras.get("metadata") or {}).get("exit_code", extras.get("exit_code"))
    if code == -1:  # still running when the harness stopped waiting
        return "timeout"
    return content.ended(code) if isinstance(code, int) else "ok"
