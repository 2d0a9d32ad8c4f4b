"""How results are shown to the model: cut, labelled, and never longer than it can use."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.sandbox import CommandResult

OBSERVATION_CHARS: Final = 10_000
"""5,000 from the head and 5,000 from the tail (mini-swe-agent's figure)."""
REPLY_CHARS: Final = 2_000
"""What stays of the model's own replies in later prompts (Z23)."""


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters, with a line between head and tail that says what is missing."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def describe(result: CommandResult) -> str:
    """A command's end and output as the model reads it."""
    parts = [_ending(result)]
    for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
        if data:
            parts.append(f"{name}:\n{cut(data.decode('utf-8', 'replace'), OBSERVATION_CHARS)}")
    if len(parts) == 1:
        parts.append("(no output)")
    return cut("\n".join(parts), 2 * OBSERVATION_CHARS)


def fresh_start(step: int, reason: str, journal: str) -> str:
    """What a context that was cleared begins with."""
    said = (
        f"[harness] Your context was cleared at step {step}: {reason}. "
        "Plan and results so far are below; do not go on as before."
    )
    return f"{said}\n\n{journal}" if journal else said


def _ending(result: CommandResult) -> str:
    if result.timed_out:
        return f"timed out after {result.seconds:.1f} s; everything it started was killed"
    if result.oom:
        return "killed: out of memory"
    if result.signal is not None:
        return f"killed by signal {result.signal}"
    return f"exit code {result.exit_code}"
