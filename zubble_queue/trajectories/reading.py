"""Reads a stored trajectory; its format is recognised by its content, never by its name."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from zubble_queue.contracts.event import Event
from zubble_queue.errors import BadInput
from zubble_queue.trajectories import (
    atif_reader,
    calls_reader,
    mini_reader,
    openhands_reader,
    own,
    swe_agent_reader,
)
from zubble_queue.trajectories.steps import Trajectory

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest file that is read; one is in memory at a time."""
_READERS: Final[tuple[ModuleType, ...]] = (atif_reader, swe_agent_reader, openhands_reader, mini_reader)
_KNOWN: Final = "an event log of ours, ATIF, mini-swe-agent, SWE-agent (.traj), OpenHands, tool calls"
_UNLIKE: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


def read_file(path: Path) -> tuple[Trajectory, ...]:
    """The trajectories of a file: one, or of JSON lines with a trajectory each as many as there are.

    Raises BadInput with one sentence when it cannot be read, or is no trajectory that is known.
    """
    data = _bytes(path)
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        if (events := _events(lines)) is not None:
            return (own.read(events),)
        whole = _json(data)
        values = [whole] if whole is not None else [_json(line) for line in lines]
        if values and calls_reader.recognises(values[0]):
            return (calls_reader.read(values),)
        return tuple(_trajectory(path, value) for value in values or [None])
    except _UNLIKE as unlike:
        problem = f"{path} cannot be read as the trajectory that it begins as: {_why(unlike)}."
        raise BadInput([problem]) from unlike


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as failed:
        raise BadInput([f"{path} cannot be read: {failed.strerror or failed}."]) from failed
    if len(data) > MAX_BYTES:
        raise BadInput([f"{path} is larger than {MAX_BYTES // 1024**2} MiB, the most that is read."])
    return data


def _events(lines: list[bytes]) -> list[Event] | None:
    """The events of a log; None where the first line is none. Raises ValueError for a later one."""
    try:
        Event.model_validate(json.loads(lines[0]))
    except (IndexError, ValueError, RecursionError):
        return None
    return [Event.model_validate(json.loads(line)) for line in lines]


def _json(data: bytes) -> Any:
    """The value; None for what is no JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _trajectory(path: Path, value: Any) -> Trajectory:
    for reader in _READERS:
        if reader.recognises(value):
            found: Trajectory = reader.read(value)
            return found
    raise BadInput([f"{path} is no trajectory that is known: {_KNOWN}."])


def _why(unlike: Exception) -> str:
    """Short, and without what the file says."""
    name = unlike.args[0] if isinstance(unlike, KeyError) and unlike.args else None
    return (
        f"{name!r} is missing" if isinstance(name, str) else "a value is of another kind than its format has"
    )
