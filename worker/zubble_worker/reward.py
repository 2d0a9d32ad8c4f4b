"""What a check wrote down about the work: a number, or numbers by name. No reward is an error, never 0."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zubble_queue.contracts.sandbox import Sandbox

PASSING: Final = 1.0
"""A reward that is at least this passes; of several the one of this name decides, else all have to."""
DECIDING: Final = "reward"
FILE_BYTES: Final = 65_536
NAMES: Final = 100
_NAME_CHARS: Final = 200
_SHOWN_CHARS: Final = 80

Reward = float | dict[str, float]


class NoReward(Exception):
    """There is none; the message is one sentence."""


class RewardMissing(NoReward):
    """No file was written."""


class RewardEmpty(NoReward):
    """There is a file and nothing in it."""


class RewardUnparsable(NoReward):
    """There is a file, and what is in it is no reward."""


async def read(sandbox: Sandbox, files: Sequence[str]) -> Reward:
    """What the first of the files that is there says.

    Raises:
        NoReward: One of its three kinds.
        SandboxUnavailable: The sandbox failed.
    """
    for path in files:
        try:
            data = await sandbox.read(path, max_bytes=FILE_BYTES)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as unreadable:
            raise RewardUnparsable(f"The reward file {path} cannot be read: {unreadable}.") from unreadable
        return _parsed(path, data)
    raise RewardMissing(f"The check wrote no reward file: {' or '.join(files)}.")


def _parsed(path: str, data: bytes) -> Reward:
    if not data.strip():
        raise RewardEmpty(f"The reward file {path} is empty.")
    try:
        return _of_json(data) if path.endswith(".json") else _number(float(data))
    except (ValueError, RecursionError) as wrong:
        shown = data[:_SHOWN_CHARS].decode("utf-8", "replace")
        raise RewardUnparsable(f"The reward file {path} holds no reward ({wrong}): {shown!r}.") from wrong


def _of_json(data: bytes) -> Reward:
    value = json.loads(data)
    if not isinstance(value, dict):
        return _number(value)
    if not value or len(value) > NAMES or any(len(name) > _NAME_CHARS for name in value):
        raise ValueError(
            f"an object must hold 1 to {NAMES} numbers, with names of up to {_NAME_CHARS} characters"
        )
    return {name: _number(number) for name, number in value.items()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it must be a number, or an object of numbers")  # noqa: TRY004 - as what json raises
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it must be finite")
    return number


def passes(reward: float | Mapping[str, float]) -> bool:
    """Whether it is enough."""
    if not isinstance(reward, Mapping):
        return reward >= PASSING
    if DECIDING in reward:
        return reward[DECIDING] >= PASSING
    return all(number >= PASSING for number in reward.values())
