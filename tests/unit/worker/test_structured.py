"""The structured protocol accepts exactly one valid object and says why it does not."""

from __future__ import annotations

import json

import jsonschema
import pytest

from zubble_queue.contracts.envelope import SandboxRequest
from zubble_queue.contracts.task import ACTUATORS
from zubble_worker.actuators import arguments
from zubble_worker.protocols.base import NotUnderstood, opening
from zubble_worker.protocols.structured import Structured
from zubble_worker.protocols.tools import SHAPES

from .conftest import envelope

PROTOCOL = Structured(envelope())
parse = PROTOCOL.parse


def test_each_action_with_what_it_needs_is_understood():
    turns = [
        {"action": "plan", "steps": ["look", "fix"]},
        {"action": "run", "command": "ls", "plan_step_id": 1, "reasoning": "look", "note": "n"},
        {"action": "run", "command": "ls", "revised_plan": ["other"]},
        {"action": "submit"},
        {"action": "report", "report": "cannot be done"},
        {"action": "ask", "question": "which?"},
    ]

    assert [parse(json.dumps(turn)).action for turn in turns] == [
        "plan",
        "run",
        "run",
        "submit",
        "report",
        "ask",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("I will list the files.", "invalid JSON"),
        ('{"action": "run", "command": "ls', "invalid JSON"),
        ('["run"]', "not a JSON object"),
        ('{"action": "fly"}', "action"),
        ('{"action": "run"}', "needs a non-empty 'command'"),
        ('{"action": "plan", "steps": []}', "needs a non-empty 'steps'"),
        ('{"action": "report"}', "needs a non-empty 'report'"),
        ('{"action": "tool", "arguments": {}}', "needs a non-empty 'tool'"),
        ('{"action": "run", "command": "ls", "plan_step_id": "1"}', "plan_step_id"),
        ('{"action": "run", "command": "ls", "shell": "sh"}', "shell"),
        ('{"action": "submit"} {"action": "submit"}', "more text follows"),
        ('{"action": "submit"}\nUser: thanks, now do the next', "another speaker's turn follows"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_anything_else_is_refused_with_its_reason(text, reason):
    with pytest.raises(NotUnderstood, match=reason):
        parse(text)


def test_a_role_marker_inside_the_object_is_data():
    action = parse('{"action": "run", "command": "printf \'User: x\' > users.yaml"}')

    assert action.command == "printf 'User: x' > users.yaml"


def test_white_space_around_the_object_does_no_harm():
    assert parse('\n  {"action": "submit", "report": "done"}\n\n').report == "done"


def test_the_repair_request_names_the_reason_and_its_author():
    request = PROTOCOL.repair_request("invalid JSON: line 1")

    assert request.startswith("[harness]")
    assert "invalid JSON: line 1" in request


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (SandboxRequest(), "a Linux sandbox without network. Your work tree"),
        (SandboxRequest(network="allowlist"), "a Linux sandbox without network. Your work tree"),
        (SandboxRequest(network="open"), "a Linux sandbox with a network. Your work tree"),
        (
            SandboxRequest(network="allowlist", allowed_hosts=("b.example", "*.a.example")),
            "programs reach only *.a.example, b.example, by http(s) through the proxy",
        ),
        (
            SandboxRequest(network="allowlist", allowed_hosts=tuple(f"h{n:03}.example" for n in range(100))),
            "h019.example and 80 more hosts, by",
        ),
        (SandboxRequest(work_dir="/app"), "Your work tree is /app.\n"),
        (SandboxRequest(work_dir=None), "Your work tree is the folder in which your commands begin.\n"),
    ],
)
def test_the_model_is_told_what_its_commands_may_reach_and_where_it_works(asked, said):
    assert said in f"{opening(asked)}\n"
    assert Structured(envelope()).system_prompt().startswith("You are an agent that works in a Linux sandbox")


def test_only_allowed_tools_are_offered_and_in_the_schema():
    every = Structured(envelope(tools=("shell", *SHAPES), test_command="true"))
    files = Structured(envelope(tools=("read", "edit")))

    assert all(f'"tool": "{tool}"' in every.system_prompt() for tool in SHAPES)
    assert '"action": "tool"' not in PROTOCOL.system_prompt()
    assert '"action": "run"' not in files.system_prompt()
    assert set(PROTOCOL.schema["properties"]["action"]["enum"]) == {"plan", "run", "report", "submit", "ask"}
    assert "arguments" not in PROTOCOL.schema["properties"]
    for turn in (
        {"action": "run", "command": "ls"},
        {"action": "tool", "tool": "write", "arguments": {"path": "a", "content": ""}},
        {"action": "tool", "tool": "read", "arguments": {"file": "a"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(turn, files.schema)
    jsonschema.validate({"action": "tool", "tool": "read", "arguments": {"path": "a"}}, files.schema)


def test_each_tool_takes_what_the_model_is_told():
    schema = Structured(envelope(tools=("shell", *SHAPES), test_command="true")).schema
    for tool, shape in SHAPES.items():
        given = json.loads(shape)
        assert isinstance(arguments.parse(tool, given), arguments.KINDS[tool])
        jsonschema.validate({"action": "tool", "tool": tool, "arguments": given}, schema)
    assert set(SHAPES) == set(ACTUATORS) - {"shell"}
