"""What a call brought: its output without what differs every time, and whether it says anything new."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from zubble_worker.observers.doom_loop import action_key

_READ_CHARS: Final = 20_000
_CLOCK: Final = r"(?::\d\d(?:[.,]\d+)?)?(?:\s*(?:AM|PM|UTC|GMT|Z)\b|[+-]\d\d:?\d\d)?"
_UNIT: Final = r"(?:ns|µs|us|ms|s|sec|secs|seconds?|min|mins|minutes?|hours?)\b"
_DIGITS: Final = (
    r"\d(?<![\w.]\d)(?:"
    rf"\d{{3}}-\d\d-\d\d(?:[T ]\d\d:\d\d{_CLOCK})?"
    rf"|\d?:\d\d{_CLOCK}"
    r"|(?<=0)x[0-9a-fA-F]+"
    r"|(?<=1)[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b"
    rf"|\d*(?:[.,]\d+)?\s?{_UNIT})"
)
_VOLATILE: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\x1b\[[0-9;]*[A-Za-z]",
        _DIGITS,
        r"[0-9a-f](?<!\w.)(?=[0-9a-f]{11})(?=[a-f]*[0-9]|(?<=[0-9]))(?=[0-9]*[a-f]|(?<=[a-f]))[0-9a-f]{11,63}\b",
        r"[ADFJMNOS](?:an|eb|ar|pr|ay|un|ul|ug|ep|ct|ov|ec)[a-z]{0,6}\.?\s{1,3}\d{1,4}\b",
        r"[FMSTW](?<!\w.)(?:on|ue|ed|hu|ri|at|un),?\s",
        r"[PpTt](?<!\w.)(?:p?[Ii][Dd]|PID|rocess|hread)[\s:=#]{0,3}\d+",
        r"\[\d+\]:",
        r"/tmp/[\w.+-]+",  # noqa: S108 - a name in somebody's output
    )
)
"""Colours, times, durations, addresses, Unix times, hashes, dates, process ids, temporary names.

Each begins with a class of characters or a literal, which makes the search fast, and none can
go over the same text again and again, whatever the output is.
"""
_FOOTER: Final = re.compile(
    r"(?i)\b(call|request|turn|attempt|invocation)s?[\s:=#]{0,3}\d+(?:\s?(?:of|/)\s?\d+)?"
)
"""Counters of a tool's own, in the last line only: elsewhere they are content (stella #440)."""


def steady(output: str) -> str:
    """The output without its volatile parts."""
    text = output[:_READ_CHARS]
    for pattern in _VOLATILE:
        text = pattern.sub("~", text)
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
    said = " ".join(command[:_READ_CHARS].split()).replace("\\", "")
    return all(" ".join(line.split()) in said for line in output[:_READ_CHARS].splitlines())
