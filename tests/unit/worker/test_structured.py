"""The structured protocol accepts exactly one valid object and says why it does not."""

from __future__ import annotations

import json

import pytest

from zubble_queue.contracts.envelope import SandboxRequest
from zubble_worker.protocols.structured import NotUnderstood, parse, repair_request, system_prompt


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
    request = repair_request("invalid JSON: line 1")

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
    assert said in system_prompt(asked)
