"""The trial journal: entries made from commands, and how they are told to a fresh context (Z24)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from zubble_queue.contracts.journal import COMMAND_CHARS, SUMMARY_CHARS, Category, JournalEntry
from zubble_queue.contracts.sandbox import CommandResult
from zubble_worker import buckets

JOURNAL_FILE: Final = ".zubble/journal.json"
"""Inside the work tree; left out of snapshots and fingerprints."""
_VERIFICATION: Final = re.compile(
    r"\b(pytest|unittest|tox|nox|ctest|jest|mvn test|go test|cargo test|make (test|check))\b"
)
_FIX: Final = re.compile(
    r"(>{1,2}\s*[^&\s]|\btee\b|\bsed\s+(-\S*i|--in-place)|\bpatch\b|\bgit\s+(apply|checkout|revert)\b"
    r"|\b(mv|cp|rm|mkdir|touch|chmod|ln)\b|\b(pip|npm|apt-get|apt)\s+install\b)"
)
_HEADING: Final = "[Previous attempts in this task — try a different approach]"


def categorise(command: str) -> Category:
    """What kind of trial a command is, by its text."""
    if _VERIFICATION.search(command):
        return "verification"
    return "fix_attempt" if _FIX.search(re.sub(r"\d?>\s*(/dev/null|&\d)", "", command)) else "diagnostic"


def entry(
    step: int,
    command: str,
    result: CommandResult,
    note: str | None,
    now: float,
    *,
    category: Category | None = None,
) -> JournalEntry:
    """The entry for a command that ran; without a category it is the one of its text."""
    output = (result.stdout + b"\n" + result.stderr).decode("utf-8", "replace").strip()
    summary = "timed out" if result.timed_out else output
    return JournalEntry(
        step=step,
        command=command[:COMMAND_CHARS],
        exit_code=result.exit_code,
        result_summary=summary[:SUMMARY_CHARS],
        category=category or categorise(command),
        model_note=note[:SUMMARY_CHARS] if note else None,
        time=now,
    )


def to_file(entries: Sequence[JournalEntry]) -> bytes:
    """The journal as the work tree holds it."""
    return json.dumps([item.model_dump() for item in entries], ensure_ascii=False, indent=1).encode()


def render(entries: Sequence[JournalEntry]) -> str:
    """The journal for a fresh context, grouped by category; empty when there is nothing to tell.

    Of more than twenty the oldest are only counted, by what they were about (Z13).
    """
    if not entries:
        return ""
    lines = [_HEADING]
    old, entries = buckets.split(entries)
    if old:
        areas = ((buckets.bucket_of(item.command, item.result_summary), item.exit_code != 0) for item in old)
        lines.append(f"EARLIER, ONLY COUNTED: {buckets.counted(areas)}")
    for category in ("diagnostic", "fix_attempt", "verification"):
        of_kind = [item for item in entries if item.category == category]
        if of_kind:
            lines.append(f"{category.upper()}:")
            lines += [line for item in of_kind for line in _lines(item)]
    return "\n".join(lines)


def _lines(item: JournalEntry) -> list[str]:
    mark = "✓" if item.exit_code == 0 else "✗"
    lines = [f"  {mark} {item.command} → {item.result_summary or 'no output'}"]
    if item.model_note:
        lines.append(f"    [Note: {item.model_note}]")
    return lines
