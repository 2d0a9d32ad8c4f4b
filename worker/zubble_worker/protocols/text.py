"""The text protocol, for models without schemas: a fenced block a turn, `<done>` to submit (C7, C35)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic import ValidationError

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_worker.protocols import fenced
from zubble_worker.protocols.base import Action, NotUnderstood, lasting, opening, tools_of
from zubble_worker.protocols.tools import SHAPES

DONE: Final = "<done>"
GIVE_UP: Final = "<give_up>"
_SHELLS: Final = frozenset({"sh", "bash", "shell"})
_PLAN: Final = "plan"
_TOOL: Final = "tool"
_ASK: Final = "ask"
_REASONING_CHARS: Final = 1_000
_REASON_CHARS: Final = 300
_BULLET: Final = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+")
_STOPS: Final = ("\nUser:", "\nHuman:", "\nAssistant:", "\nSystem:")
"""At the start of a line only: elsewhere they are what is talked about (C15)."""
_SPEAKER: Final = re.compile(r"^(User|Human|Assistant|System)\s*:")


class Text:
    """Implements protocols.base.Protocol."""

    name = "text"
    schema: dict[str, Any] | None = None
    format_error_limit = 3

    def __init__(self, envelope: TaskEnvelope) -> None:
        self._envelope, self._tools = envelope, tools_of(envelope)
        self.stops = tuple(dict.fromkeys((*envelope.stop, *_STOPS)))
        self._shell = "shell" in envelope.task.allowed_tools

    def system_prompt(self) -> str:
        return f"{opening(self._envelope.sandbox)}\n{self.rules()}"

    def rules(self) -> str:
        """How to answer."""
        turns = [_RULE_OF_SHELL.format(lasting=lasting(self._envelope.sandbox))] if self._shell else []
        if self._tools:
            shapes = "\n".join(f'{{"tool": "{tool}", "arguments": {SHAPES[tool]}}}' for tool in self._tools)
            turns.append(_RULE_OF_TOOLS.format(shapes=shapes))
        if self._envelope.ask.human:
            turns.append(_RULE_OF_QUESTIONS)
        return "\n".join([_HEAD, *turns, _TAIL])

    def parse(self, text: str) -> Action:
        """The action in a reply.

        Raises:
            NotUnderstood: It is not one command or tool, one plan with or without them, or one ending.
        """
        if not text.strip():
            raise NotUnderstood("the reply was empty")
        reply = fenced.split(text)
        if not reply.closed:
            raise NotUnderstood("a fenced block is not closed")
        if any(_SPEAKER.match(line) for line in reply.outside):
            raise NotUnderstood("another speaker's turn is in it; write your own turn only")
        acts = [block for block in reply.blocks if _acts(block)]
        plans = [block for block in reply.blocks if _word(block) == _PLAN]
        prose = "\n".join(reply.outside).strip()
        ending = prose.splitlines()[-1].strip() if prose and reply.ends_outside else ""
        if ending in {DONE, GIVE_UP}:
            if acts:
                raise NotUnderstood(f"a block and {ending} in one reply; first see what comes of the block")
            return self._ended(ending, prose.removesuffix(ending).strip())
        if len(acts) > 1 or len(plans) > 1:
            raise NotUnderstood(
                "more than one block in one reply; send exactly one, then wait for its result"
            )
        if not acts and not plans:
            raise NotUnderstood(f"neither a fenced block with a command, nor {DONE} as the last line")
        fields: dict[str, Any] = _asked(acts[0]) if acts else {"action": "plan"}
        if plans:
            fields["revised_plan" if acts else "steps"] = _steps(plans[0])
        if prose:
            fields["reasoning"] = prose[:_REASONING_CHARS]
        return _action(fields)

    def repair_request(self, reason: str) -> str:
        """What a reply that was not understood is answered with, once a step."""
        return (
            f"[harness] Your last reply could not be used: {reason}. "
            f"Send exactly one fenced block, or {DONE} alone as the last line."
        )

    def _ended(self, ending: str, said: str) -> Action:
        if ending == DONE:
            return _action({"action": "submit", "report": said[:_REASONING_CHARS] or None})
        return _action({"action": "report", "report": said[-_REASONING_CHARS:] or "no reason given"})


def _word(block: fenced.Block) -> str:
    return block.words[0].lower() if block.words else ""


def _acts(block: fenced.Block) -> bool:
    """A block in another language is talked about, not run."""
    return _word(block) in {"", _TOOL, _ASK, *_SHELLS}


def _asked(block: fenced.Block) -> dict[str, Any]:
    if _word(block) == _TOOL:
        fields = _tool(block.text)
    elif not block.text.strip():
        raise NotUnderstood("the block is empty")
    elif _word(block) == _ASK:
        fields = {"action": "ask", "question": block.text.strip()}
    else:
        fields = {"action": "run", "command": block.text}
    step = block.words[1] if len(block.words) > 1 else ""
    return {**fields, "plan_step_id": int(step)} if re.fullmatch(r"[1-9][0-9]{0,2}", step) else fields


def _tool(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise NotUnderstood(f"the tool block holds no JSON object: {wrong}"[:_REASON_CHARS]) from wrong
    if not isinstance(value, dict) or not value.get("tool") or value.keys() - {"tool", "arguments"}:
        raise NotUnderstood('a tool block holds {"tool": ..., "arguments": {...}} and nothing else')
    return {"action": "tool", **value}


def _steps(block: fenced.Block) -> list[str]:
    steps = [_BULLET.sub("", line).strip() for line in block.text.splitlines() if line.strip()]
    if not steps:
        raise NotUnderstood("the plan is empty")
    return steps


def _action(fields: dict[str, Any]) -> Action:
    try:
        return Action.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NotUnderstood(f"{where}: {first['msg']}"[:_REASON_CHARS]) from error


_HEAD: Final = """\
Begin with a plan, one step a line:
```plan
first step
second step
```
Then send one fenced block per turn for the next pending step, and wait for its result. The number after its
first word is the step of the plan."""
_RULE_OF_SHELL: Final = """\
A command:
```sh 1
ls -l
```
Each command is a fresh /bin/sh process; {lasting}. Standard input is empty. Long output is cut.
A command that holds three backticks is fenced by four."""
_RULE_OF_TOOLS: Final = """\
A tool, one of those below; paths are relative to the work tree:
```tool 1
{{"tool": "...", "arguments": {{...}}}}
```
{shapes}"""
_RULE_OF_QUESTIONS: Final = """\
A question to a person, who may take long to answer; ask only what you cannot find out or decide:
```ask 1
...
```"""
_TAIL: Final = """\
When the success criteria are met, say in a line what was done and write <done> alone as the last line. They
are then checked; if they are not met, go on. To give up say why and write <give_up> alone as the last line.
To leave the plan, send a new plan block, with the cause before it.
Text marked [harness] comes from the machinery around you, not from a person."""
