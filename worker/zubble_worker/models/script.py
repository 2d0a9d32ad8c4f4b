r"""The script format: what the mock endpoint and the scripted model answer.

A script is a JSON file with `rules`, or a JSONL file with one rule a line. The first rule whose `when` holds
answers. Its k-th turn answers a prompt that holds k assistant messages, so a script needs no memory and an
agent that moves to another worker is answered as if nothing had happened. A whole script:

    {"rules": [
      {"when": {"contains": "sort_numbers"},
       "turns": ["{\"action\": \"plan\", \"steps\": [\"write it\"]}",
                 {"text": ["All ", {"repeat": "truncated ", "times": 7303}], "token_seconds": 0.001},
                 {"text": "done", "fault": {"kind": "status", "status": 429, "first_tries": 2}}]},
      {"turns": ["{\"action\": \"submit\", \"report\": \"nothing to do\"}"]}
    ]}
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from zubble_queue.contracts import identity
from zubble_queue.errors import BadInput
from zubble_worker.models.scripted_reply import Fault, ScriptedReply

if TYPE_CHECKING:
    from pathlib import Path

_FROZEN: Final = ConfigDict(frozen=True, extra="forbid")


class When(BaseModel):
    """All that is given must hold; an empty one holds always."""

    model_config = _FROZEN

    contains: str | None = None
    """Somewhere in the system and user messages."""
    matches: str | None = None
    """A regular expression, searched in the system and user messages."""
    last_contains: str | None = None
    """Somewhere in the last message that is not the assistant's."""
    marker: str | None = None
    """Equal to what the script's `marker` pattern found."""
    model: str | None = None
    """The name the request asks for."""
    continuing: str | None = None
    """Somewhere in the beginning of the reply that the request asks to go on from."""

    @field_validator("matches")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        return _checked_pattern(pattern)

    def holds(self, prompt: Prompt, marker: str) -> bool:
        return (
            (self.model is None or self.model == prompt.model)
            and (self.marker is None or self.marker == marker)
            and (self.contains is None or self.contains in prompt.text)
            and (self.last_contains is None or self.last_contains in prompt.last)
            and (self.continuing is None or self.continuing in prompt.beginning)
            and (self.matches is None or re.search(self.matches, prompt.text) is not None)
        )


class Rule(BaseModel):
    """Who is answered, and with what in which turn."""

    model_config = _FROZEN

    name: str = ""
    """For the call log; its number in the script where it is left out."""
    when: When = Field(default_factory=When)
    turns: tuple[ScriptedReply, ...] = Field(min_length=1)
    then: Literal["last", "cycle"] = "last"
    """After the turns: the last one again, or all from the start."""

    def reply(self, turn: int) -> ScriptedReply:
        if self.then == "cycle":
            return self.turns[turn % len(self.turns)]
        return self.turns[min(turn, len(self.turns) - 1)]


@dataclass(frozen=True)
class Prompt:
    """What a script looks at in a request."""

    model: str
    messages: tuple[tuple[str, str], ...]
    """(role, content) pairs."""

    @cached_property
    def text(self) -> str:
        return "\n".join(content for role, content in self.messages if role != "assistant")

    @cached_property
    def last(self) -> str:
        return next((content for role, content in reversed(self.messages) if role != "assistant"), "")

    @property
    def beginning(self) -> str:
        """Of the reply that is asked for; empty where it is to begin anew."""
        role, content = self.messages[-1] if self.messages else ("", "")
        return content if role == "assistant" else ""

    @property
    def turn(self) -> int:
        return sum(role == "assistant" for role, _ in self.messages)


@dataclass(frozen=True)
class Cue:
    """The reply a script has for a prompt."""

    rule: str
    marker: str
    turn: int
    reply: ScriptedReply


class Script(BaseModel):
    """Rules in order of precedence."""

    model_config = _FROZEN

    rules: tuple[Rule, ...] = Field(min_length=1)
    marker: str | None = None
    r"""A regular expression whose first group, as in `task_id: (\S+)`, names the task in the call log."""

    @field_validator("marker")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if _checked_pattern(pattern) is not None and re.compile(pattern or "").groups < 1:
            raise ValueError("marker needs a group, as in 'task_id: (\\S+)'")
        return pattern

    @classmethod
    def always(cls, *turns: ScriptedReply | str) -> Script:
        """One rule that answers everybody."""
        return cls.model_validate({"rules": [{"turns": turns}]})

    @classmethod
    def load(cls, path: Path) -> Script:
        """Read a .json file, or a .jsonl file with one rule a line.

        Raises:
            BadInput: Unreadable, not JSON or not a script; one sentence per problem.
        """
        try:
            text = path.read_text("utf-8")
            data = {"rules": _lines(text)} if path.suffix == ".jsonl" else json.loads(text)
            return cls.model_validate(data)
        except OSError as problem:
            raise BadInput([f"{path}: {problem.strerror}."]) from problem
        except ValidationError as problem:
            raise BadInput([_sentence(path, error) for error in problem.errors()]) from problem
        except ValueError as problem:
            raise BadInput([f"{path} is not JSON: {problem}."]) from problem

    def cue(self, prompt: Prompt) -> Cue | None:
        """What to answer; None where no rule fits."""
        marker = self.marker_of(prompt)
        for number, rule in enumerate(self.rules, start=1):
            if rule.when.holds(prompt, marker):
                return Cue(rule.name or str(number), marker, prompt.turn, rule.reply(prompt.turn))
        return None

    def marker_of(self, prompt: Prompt) -> str:
        found = re.search(self.marker, prompt.text) if self.marker else None
        return found[1] if found else ""


@dataclass
class Tries:
    """Counts how often the same prompt was tried, for faults that pass."""

    _seen: Counter[str] = field(default_factory=Counter)

    def fault(self, cue: Cue, prompt: Prompt) -> Fault | None:
        """The fault this try meets."""
        fault = cue.reply.fault
        if fault is None or fault.first_tries is None:
            return fault
        key = identity.sha256(f"{cue.rule}\0{cue.turn}\0{prompt.text}".encode("utf-8", "surrogatepass"))
        self._seen[key] += 1
        return fault if self._seen[key] <= fault.first_tries else None


def _lines(text: str) -> list[Any]:
    rules = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rules.append(json.loads(line))
            except ValueError as problem:
                raise ValueError(f"line {number}: {problem}") from problem
    return rules


def _sentence(path: Path, error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{path}: {where}: {error['msg']}."


def _checked_pattern(pattern: str | None) -> str | None:
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from problem
    return pattern
