"""Why a run stopped, and how a stop travels out of the middle of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zubble_queue.contracts.ending import Stop


@dataclass(frozen=True, slots=True)
class Stopped:
    """The loop's one way out."""

    stop: Stop
    reason: str = ""
    report: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


class Stopping(Exception):
    """Carries a Stopped from wherever it was decided to the loop's edge, and no further (C11)."""

    def __init__(self, stop: Stop, reason: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.stopped = Stopped(stop, reason, evidence=evidence or {})
