"""Reads mini-swe-agent's trajectories: 1.x with its messages, and bare lists of messages."""

from __future__ import annotations

import re
from typing import Any, Final

from zubble_queue.trajectories import content
from zubble_queue.trajectories.steps import Call, Step, Trajectory

_BLOCK: Final = re.compile(
    r"^```(?:mswea_bash_command|bash|sh)[^\S\n]*\n(.*?)\n?^```", re.DOTALL | re.MULTILINE
)
_TIMED_OUT: Final = re.compile(r"timed out", re.IGNORECASE)


def recognises(value: Any) -> bool:
    messages = _messages(value)
    return isinstance(messages, list) and any(
        isinstance(message, dict) and message.get("role") == "assistant" for message in messages
    )


def _messages(value: Any) -> Any:
    if isinstance(value, dict):
        return value.get("messages") if "trajectory" not in value and "history" not in value else None
    return value


def read(value: Any) -> Trajectory:
    """Raises KeyError, TypeError, ValueError or AttributeError where it is not as the format says."""
    messages = _messages(value)
    turns = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    ends = [*turns[1:], len(messages)]
    steps = [
        _step(number, messages[at], messages[at + 1 : end])
        for number, (at, end) in enumerate(zip(turns, ends, strict=True), 1)
    ]
    return Trajectory("mini-swe-agent", tuple(steps))


def _step(number: int, message: dict[str, Any], answers: list[dict[str, Any]]) -> Step:
    said = content.text(message.get("content"))
    answers = [answer for answer in answers if answer.get("role") in {"tool", "user"}]
    functions = [called["function"] for called in message.get("tool_calls") or ()]
    calls = _tool_calls(message, answers) if functions else _commands(said, message, answers)
    return Step(
        number,
        said,
        content.text(message.get("reasoning_content")),
        tuple(content.text(function.get("arguments")) for function in functions),
        calls=calls,
        bad_replies=int(not calls and bool(answers)),
        unusable=not calls and bool(answers),
    )


def _tool_calls(message: dict[str, Any], answers: list[dict[str, Any]]) -> tuple[Call, ...]:
    by_id = {answer.get("tool_call_id"): answer for answer in answers}
    found = []
    for called in message["tool_calls"]:
        function, answer = called["function"], by_id.get(called.get("id"), {})
        output = content.text(answer.get("content"))
        found.append(
            content.call(str(function["name"]), function.get("arguments"), output, _end(answer, output))
        )
    return tuple(found)


def _commands(said: str, message: dict[str, Any], answers: list[dict[str, Any]]) -> tuple[Call, ...]:
    """From `extra.actions`, else the one code block of the text."""
    actions = (message.get("extra") or {}).get("actions") or []
    commands = [action["command"] for action in actions if isinstance(action.get("command"), str)]
    if not commands and len(blocks := _BLOCK.findall(said)) == 1:
        commands = blocks
    found = []
    for at, command in enumerate(commands):
        answer = answers[at] if at < len(answers) else {}
        output = content.text(answer.get("content"))
        found.append(content.call("shell", command, output, _end(answer, output)))
    return tuple(found)


def _end(answer: dict[str, Any], output: str) -> Any:
    """By `extra.returncode`, else by what the output says; mini puts a time-out into words."""
    code = (answer.get("extra") or {}).get("returncode")
    if isinstance(code, int) and code >= 0:
        return content.ended(code)
    if _TIMED_OUT.search(output[:200]):
        return "timeout"
    return "failed" if isinstance(code, int) else None
