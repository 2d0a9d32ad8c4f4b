"""What a call is about: paths and identifiers, its program, and whether it only waits."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_WORD: Final = re.compile(r"(?<![\w./~-])(?=\S{0,99}[A-Za-z])[A-Za-z_./~][\w./~:-]*")
"""Begins like a name or path: options and ranges of lines are none."""
_QUOTED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')""")
_SEPARATORS: Final = re.compile(r"&&|\|\||[;|\n]")
_TALK: Final = frozenset({"echo", "printf", "true", ":", "false", "sleep", "date", "pwd", "wait"})
"""Programs whose words are about nothing."""
_SHELL_WORDS: Final = frozenset(
    {"if", "then", "else", "fi", "do", "done", "for", "while", "in", "sudo", "cd"}
)
_WAIT: Final = re.compile(r"\s*sleep\s+(\d+(?:\.\d+)?)[smh]?\s*(?:$|;|&&|\n)")
_WAIT_TOOLS: Final = frozenset({"wait"})
_MAX_TARGETS: Final = 40
_READ_CHARS: Final = 2_000


def waits(tool: str, arguments: str) -> bool:
    """A `wait` action, or a command that begins with a sleep."""
    return tool in _WAIT_TOOLS or (tool == "shell" and _WAIT.match(arguments) is not None)


def program(tool: str, arguments: str) -> str:
    """The tool, or for the shell the program that a command starts."""
    if tool != "shell":
        return tool
    for part in _SEPARATORS.split(arguments[:_READ_CHARS]):
        words = [word for word in part.split() if "=" not in word and word not in _SHELL_WORDS]
        if words and not part.strip().startswith("cd "):
            return words[0].rsplit("/", 1)[-1][:60]
    return "shell"


def targets(tool: str, arguments: str) -> frozenset[str]:
    """Paths and names that a call is about; free text is none (Illospace #506)."""
    if tool != "shell":
        return frozenset(_strings(arguments))
    found: set[str] = set()
    for part in _SEPARATORS.split(_QUOTED.sub(_names_only, arguments[:_READ_CHARS])):
        words = part.split()
        if words and words[0].rsplit("/", 1)[-1] in _TALK:
            words = [word for word in words if word.startswith(">") or "/" in word]
        found |= {name for word in words for name in _WORD.findall(word) if name not in _SHELL_WORDS}
    return frozenset(sorted(found)[:_MAX_TARGETS])


def _names_only(quoted: re.Match[str]) -> str:
    """A quoted single word may be a path or pattern; a quoted sentence is talk."""
    inner = quoted[0][1:-1]
    return inner if inner and not re.search(r"\s", inner) else " "


def _strings(arguments: str) -> list[str]:
    try:
        value: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return _WORD.findall(arguments)[:_MAX_TARGETS]
    if not isinstance(value, dict):
        return []
    words = [text for text in value.values() if isinstance(text, str) and not re.search(r"\s", text)]
    return words[:_MAX_TARGETS]
