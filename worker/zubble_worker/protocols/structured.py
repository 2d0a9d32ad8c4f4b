"""The structured protocol: one JSON object per turn (Z8, Z11), parsed strictly, repaired at most once."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from zubble_queue.contracts.envelope import SandboxRequest

_REASON_CHARS: Final = 300
_HOSTS_NAMED: Final = 20
_ROLE_MARKER: Final = re.compile(r"^\s*(User|Human|Assistant|System)\s*:", re.MULTILINE)

StepText = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class Action(BaseModel):
    """One turn of the agent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    action: Literal["plan", "run", "report", "submit", "ask"]
    command: str | None = Field(default=None, max_length=65_536)
    plan_step_id: int | None = Field(default=None, ge=1)
    reasoning: str | None = None
    steps: list[StepText] | None = Field(default=None, max_length=50)
    report: str | None = None
    question: str | None = None
    revised_plan: list[StepText] | None = Field(default=None, max_length=50)
    note: str | None = None


_NEEDED: Final = {"plan": "steps", "run": "command", "report": "report", "ask": "question"}
SCHEMA: Final[dict[str, Any]] = Action.model_json_schema()


class NotUnderstood(Exception):
    """The reply is not one valid action; the message says why, for the model and for the record."""


def parse(text: str) -> Action:
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
    needed = _NEEDED.get(action.action)
    if needed and not getattr(action, needed):
        raise NotUnderstood(f"action {action.action!r} needs a non-empty {needed!r}")
    return action


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


def repair_request(reason: str) -> str:
    """What a reply that was not understood is answered with, once."""
    return (
        f"[harness] Your last reply could not be used: {reason}. "
        "Send the same turn again as exactly one JSON object, without any text around it."
    )


def system_prompt(asked: SandboxRequest) -> str:
    """The rules of the protocol, where the work tree is, and what commands may reach."""
    place = asked.work_dir or "the folder in which your commands begin"
    opening = f"You are an agent that works in a Linux sandbox {_reach(asked)}. Your work tree is {place}."
    return f"{opening}\n{_RULES}"


def _reach(asked: SandboxRequest) -> str:
    if asked.network == "open":
        return "with a network"
    if not asked.allowed_hosts:
        return "without network"
    named, more = asked.allowed_hosts[:_HOSTS_NAMED], len(asked.allowed_hosts) - _HOSTS_NAMED
    hosts = ", ".join(named) + (f" and {more} more hosts" if more > 0 else "")
    return f"whose programs reach only {hosts}, by http(s) through the proxy of their environment variables"


_RULES: Final = """\
Every turn you reply with exactly one JSON object and nothing else:
{"action": "plan", "steps": ["...", "..."], "reasoning": "..."}
{"action": "run", "command": "shell command", "plan_step_id": 1, "reasoning": "...", "note": "optional"}
{"action": "submit", "report": "one line"}
{"action": "report", "report": "one line"}
{"action": "ask", "question": "..."}
Rules:
- The first turn is a plan with ordered steps. Then run one command per turn for the next pending step.
- Each command is a fresh /bin/sh process; only files persist. Standard input is empty. Long output is cut.
- "submit" says that the success criteria are met. They are then checked. A rejected submission means: go on.
- "report" gives up and ends the task; say why in one line.
- To leave the plan, add "revised_plan": ["..."] to a run, with the cause in "reasoning".
- Text marked [harness] comes from the machinery around you, not from a person."""
