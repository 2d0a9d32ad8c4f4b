"""What a call brought: its output without what differs every time, and whether it says anything new."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from zubble_worker.observers.doom_loop import action_key

_READ_CHARS: Final = 20_000
_VOLATILE: Final = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (
        re.compile(
            r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+)?(?:\d{1,2}\s+)?"
            r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+\d{1,4}\b"
        ),
        "<time>",
    ),
    (re.compile(r"\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s*(?:AM|PM|UTC|GMT)\b)?"), "<time>"),
    (re.compile(r"\b\d+(?:[.,]\d+)?\s*(?:ns|µs|us|ms|s|sec(?:ond)?s?|min(?:ute)?s?|hours?)\b"), "<duration>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b"), "<hash>"),
    (re.compile(r"(?i)\b(pid|process|thread|tid|ppid)(\s*[:=#]?\s*)\d+"), r"\1\2<id>"),
    (re.compile(r"(\w)\[\d+\]:"), r"\1[<id>]:"),
    (re.compile(r"\b1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b"), "<time>"),
    (re.compile(r"(/tmp/|/var/tmp/)[\w.+-]+"), r"\1<name>"),
)
"""Times, durations, addresses, hashes, process ids, Unix times, temporary names."""
_FOOTER: Final = re.compile(
    r"(?i)\b(call|request|turn|attempt|invocation)s?(\s*[:=#]?\s*)\d+(\s*(?:of|/)\s*\d+)?"
)
"""Counters of a tool's own, in the last line only: elsewhere they are content (stella #440)."""


def steady(output: str) -> str:
    """The output without its volatile parts."""
    text = output[:_READ_CHARS]
    for pattern, mark in _VOLATILE:
        text = pattern.sub(mark, text)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if lines:
        lines[-1] = _FOOTER.sub(r"\1 <n>", lines[-1])
    return "\n".join(lines)


def call_key(tool: str, arguments: str) -> str:
    """Equal for calls that are the same but for spacing and the order of keys."""
    return sha256(action_key(tool, arguments).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest(end: str, output: str) -> str:
    """Equal for results that say the same."""
    return sha256(f"{end}\0{steady(output)}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_echo(command: str, output: str) -> bool:
    """Whether the output holds nothing but what the command said itself."""
    said = " ".join(command.split()).replace("\\", "")
    return all(" ".join(line.split()) in said for line in output[:_READ_CHARS].splitlines())
