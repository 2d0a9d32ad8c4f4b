"""The structured protocol: one JSON object per turn (Z8, Z11), parsed strictly, repaired at most once."""

from __future__ import annotations

import copy
import json
import re
from functools import cached_property
from typing import Any, Final

from pydantic import ValidationError

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_worker.actuators.arguments import KINDS
from zubble_worker.protocols.base import Action, NotUnderstood, lasting, opening, tools_of
from zubble_worker.protocols.tools import SHAPES

_REASON_CHARS: Final = 300
_ROLE_MARKER: Final = re.compile(r"^\s*(User|Human|Assistant|System)\s*:", re.MULTILINE)
_NEEDED: Final = {
    "plan": ("steps",),
    "run": ("command",),
    "tool": ("tool",),
    "report": ("report",),
    "ask": ("question",),
}
_SCHEMA: Final[dict[str, Any]] = Action.model_json_schema()


class Structured:
    """Implements protocols.base.Protocol."""

    name = "structured"
    stops: tuple[str, ...] = ()
    """A role marker inside a JSON string would cut the object; one outside is found here (C15)."""
    format_error_limit = 1

    def __init__(self, envelope: TaskEnvelope) -> None:
        self._envelope, self._tools = envelope, tools_of(envelope)
        self._shell = "shell" in envelope.task.allowed_tools

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Of an action that this task allows."""
        schema = copy.deepcopy(_SCHEMA)
        properties = schema["properties"]
        if self._tools:
            properties["tool"]["anyOf"][0]["enum"] = list(self._tools)
            shapes = [KINDS[tool].model_json_schema() for tool in self._tools]
            properties["arguments"] = {"anyOf": [*shapes, {"type": "null"}], "default": None}
        else:
            del properties["tool"], properties["arguments"]
        absent = {"tool"} if not self._tools else set()
        absent |= set() if self._shell else {"run"}
        properties["action"]["enum"] = [kind for kind in properties["action"]["enum"] if kind not in absent]
        return schema

    def system_prompt(self) -> str:
        """The rules of the protocol, where the work tree is, what commands may reach, the allowed tools."""
        return f"{opening(self._envelope.sandbox)}\n{self.rules()}"

    def rules(self) -> str:
        """How to answer."""
        turns = [_RUN] if self._shell else []
        turns += [_tool_line(tool) for tool in self._tools]
        rules = [_RULE_OF_SHELL.format(lasting=lasting(self._envelope.sandbox))] if self._shell else []
        rules += [_RULE_OF_TOOLS] if self._tools else []
        one = "one command" if not self._tools else "one command or tool" if self._shell else "one tool"
        return "\n".join([_HEAD, *turns, _ENDINGS, _FIRST.format(one=one), *rules, _TAIL])

    def parse(self, text: str) -> Action:
        """The action in a reply.

        Raises:
            NotUnderstood: It is not exactly one JSON object of the protocol.
        """
        stripped = text.strip()
        if not stripped:
            raise NotUnderstood("the reply was empty")
        value = _single_object(stripped)
        try:
            action = Action.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the object"
            raise NotUnderstood(f"{where}: {first['msg']}"[:_REASON_CHARS]) from error
        for needed in _NEEDED.get(action.action, ()):
            if not getattr(action, needed):
                raise NotUnderstood(f"action {action.action!r} needs a non-empty {needed!r}")
        return action

    def repair_request(self, reason: str) -> str:
        """What a reply that was not understood is answered with, once."""
        return (
            f"[harness] Your last reply could not be used: {reason}. "
            "Send the same turn again as exactly one JSON object, without any text around it."
        )


def _single_object(text: str) -> Any:
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise NotUnderstood(f"invalid JSON: {error}"[:_REASON_CHARS]) from error
    rest = text[end:].strip()
    if rest:
        what = "another speaker's turn" if _ROLE_MARKER.search(rest) else "more text"
        raise NotUnderstood(f"{what} follows the JSON object; send exactly one object and nothing else")
    if not isinstance(value, dict):
        raise NotUnderstood("the reply is not a JSON object")
    return value


def _tool_line(tool: str) -> str:
    return f'{{"action": "tool", "tool": "{tool}", "arguments": {SHAPES[tool]}, "plan_step_id": 1}}'


_HEAD: Final = """\
Every turn you reply with exactly one JSON object and nothing else:
{"action": "plan", "steps": ["...", "..."], "reasoning": "..."}"""
_RUN: Final = (
    '{"action": "run", "command": "shell command", "plan_step_id": 1, "reasoning": "...", "note": "optional"}'
)
_ENDINGS: Final = """\
{"action": "submit", "report": "one line"}
{"action": "report", "report": "one line"}
{"action": "ask", "question": "..."}
Rules:"""
_FIRST: Final = (
    "- The first turn is a plan with ordered steps. Then run {one} per turn for the next pending step."
)
_RULE_OF_SHELL: Final = (
    "- Each command is a fresh /bin/sh process; {lasting}. Standard input is empty. Long output is cut."
)
_RULE_OF_TOOLS: Final = (
    "- Paths of tools are relative to the work tree. A tool that cannot do what it was asked says why."
)
_TAIL: Final = """\
- "submit" says that the success criteria are met. They are then checked. A rejected submission means: go on.
- "report" gives up and ends the task; say why in one line.
- To leave the plan, add "revised_plan": ["..."] to a run, with the cause in "reasoning".
- Text marked [harness] comes from the machinery around you, not from a person."""
