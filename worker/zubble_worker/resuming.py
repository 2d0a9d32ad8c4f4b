"""Where the next attempt goes on: what of an earlier attempt's events still holds, and what was cut off.

A checkpoint is taken whenever the work tree is at rest, also in the middle of a step. A step whose reply was
not acted on yet left nothing in the tree, so it is asked for again. A step whose command had begun did, so
the agent is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from zubble_queue.contracts.event import Event


def acted_on(events: Sequence[Event]) -> list[Event]:
    """The events without a last step of which nothing was done."""
    begin = _last_step(events)
    began = any(event.type in {"observation", "asked"} or _runs(event) for event in events[begin:])
    return list(events if began else events[:begin])


def interruption(events: Sequence[Event]) -> str:
    """What the agent must know about a command it has seen no result of; empty where there is none."""
    last = events[_last_step(events) :]
    command = next((_call(event) for event in last if _runs(event)), None)
    if command is None or any(event.type == "observation" for event in last):
        return ""
    ended = next((event.data for event in last if event.type == "command_finished"), None)
    if ended is None:
        return f"Your last command was interrupted and may have run in part: {command}"
    return f"Your last command had ended with exit code {ended['exit_code']}, its output is gone: {command}"


def _last_step(events: Sequence[Event]) -> int:
    """Where the last step begins, its repairs included; the end where there was none."""
    calls = [(at, event.data["step"]) for at, event in enumerate(events) if event.type == "call_started"]
    return min((at for at, step in calls if step == calls[-1][1]), default=len(events))


def _call(event: Event) -> str:
    tool, command = event.data.get("tool", "shell"), event.data["command"]
    return str(command) if tool == "shell" else f"{tool} {command}"


def _runs(event: Event) -> bool:
    return event.type == "dispatch" and event.data["doom_loop"] == "allow"
