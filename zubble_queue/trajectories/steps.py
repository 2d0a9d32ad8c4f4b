"""A stored trajectory, whoever wrote it, as detectors see one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Format = Literal["zubble", "atif", "mini-swe-agent", "swe-agent", "openhands", "calls"]
End = Literal["ok", "failed", "timeout", "refused", "denied", "infra", "none"]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call and what came of it."""

    tool: str
    """`shell` for commands."""
    arguments: str
    """The command, or a tool's arguments as JSON text."""
    output: str = ""
    end: End = "ok"
    """As far as the file tells: what says nothing of an exit code ended `ok`."""
    state: str | None = None
    """Fingerprint of the work tree before the call; None where nobody took one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the agent, its calls nested."""

    number: int
    """From 1."""
    text: str = ""
    reasoning: str = ""
    arguments: tuple[str, ...] = ()
    """Of tool calls, as they streamed beside the text."""
    replies: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Earlier replies of the same step, that were repaired or cut: text, reasoning, arguments."""
    calls: tuple[Call, ...] = ()
    bad_replies: int = 0
    """Replies that the harness could not use."""
    unusable: bool = False
    """The last of them neither: nothing came of the step."""
    plan_step: int = 0
    prompt_share: float | None = None
    score: float | None = None
    rejected: bool = False
    """It claimed to be done, and the check said no."""
    cleared: bool = False
    """The context was cleared after it."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One run."""

    format: Format
    steps: tuple[Step, ...] = field(default=())
