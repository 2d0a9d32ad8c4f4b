"""Why a run stopped, and how a stop travels out of the middle of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zubble_queue.contracts.decisions import Allow, Answer, Deny
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


def ask_policy(ask: Callable[[], Answer]) -> Answer:
    """The one helper through which every policy is asked; it fails closed (F6, F16)."""
    try:
        answer = ask()
    except Exception as error:  # noqa: BLE001 - a policy is foreign code; whatever it raises means no
        return Deny(f"policy failed: {type(error).__name__}: {error}"[:300])
    return answer if isinstance(answer, Allow | Deny) else Deny("policy gave no answer")
