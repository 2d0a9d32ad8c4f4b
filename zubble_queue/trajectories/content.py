"""Values of a stored trajectory, which anybody may have written, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from zubble_queue.trajectories.steps import Call, End

_SHELLS: Final = frozenset({"bash", "bash_command", "execute_bash", "execute_command", "run", "shell"})
_COMMANDS: Final = ("command", "keystrokes", "cmd")
_EXIT_CODE: Final = re.compile(r"<returncode>(-?\d+)</returncode>|exit code (-?\d+)")
_TIMED_OUT: Final = 124


def text(value: Any) -> str:
    """A message's content: a string, or the text parts of a list of parts; else nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def call(tool: str, arguments: Any, output: str = "", end: End | None = None) -> Call:
    """A tool call; one of a shell's is its command.

    Args:
        tool: Its name in the file.
        arguments: A JSON value, or one as text.
        output: What it printed.
        end: None where the output may tell.
    """
    value = _parsed(arguments)
    if tool in _SHELLS and isinstance(value, Mapping):
        command = next((value[name] for name in _COMMANDS if isinstance(value.get(name), str)), None)
        if command is not None:
            return Call("shell", command, output, end or end_in(output))
    plain = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return Call("shell" if tool in _SHELLS else tool, plain, output, end or end_in(output))


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def end_in(output: str) -> End:
    """How a command ended by the exit code that its output names; `ok` where it names none."""
    found = list(_EXIT_CODE.finditer(output))
    return ended(int(found[0][1] or found[-1][2])) if found else "ok"


def ended(exit_code: int) -> End:
    """By an exit code; that of coreutils' `timeout` is a time-out."""
    if exit_code == _TIMED_OUT:
        return "timeout"
    return "ok" if exit_code == 0 else "failed"
