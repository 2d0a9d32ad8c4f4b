"""What one check of `zubble doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "unused", "warning", "failed", "unreachable", "unavailable"]
"""`unused`: it is of no use here; `unreachable`: a server does not answer; `unavailable`: what is below us
does not give what is needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    check: str
    verdict: Verdict
    detail: str
    todo: str = ""
    """One sentence; empty where there is nothing to do."""
