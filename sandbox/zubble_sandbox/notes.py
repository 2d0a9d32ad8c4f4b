"""What is written down about a sandbox for the worker that may adopt it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable

_LEFT_OUT: Final = frozenset({"readonly_files"})
"""They are in the sandbox already."""


def note(spec: SandboxSpec) -> str:
    return json.dumps({name: value for name, value in asdict(spec).items() if name not in _LEFT_OUT})


def recalled(text: str) -> SandboxSpec:
    """The spec of a note. Raises SandboxUnavailable when another version wrote it."""
    try:
        told: Any = json.loads(text)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
        }
        return SandboxSpec(**values)
    except (AttributeError, TypeError, ValueError) as error:
        raise SandboxUnavailable(
            f"The sandbox was opened by another version of zubble-queue ({error})."
        ) from error
