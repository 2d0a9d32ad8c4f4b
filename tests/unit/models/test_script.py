"""Scripts: read from files with every mistake named, matched by the prompt, stateless between turns."""

from __future__ import annotations

import json

import pytest

from zubble_queue.errors import BadInput
from zubble_worker.models.script import Prompt, Script, Tries


def prompt(*messages: tuple[str, str], model: str = "m") -> Prompt:
    return Prompt(model, messages or (("user", "hello"),))


def script(*rules, **settings) -> Script:
    return Script.model_validate({"rules": rules} | settings)


def said(script: Script, prompt: Prompt) -> str | None:
    cue = script.cue(prompt)
    return cue and cue.reply.text


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True),
        ({"contains": "sort_numbers"}, True),
        ({"contains": "draft"}, False),
        ({"matches": r"sort_\w+\(x\)"}, True),
        ({"matches": "^nothing$"}, False),
        ({"last_contains": "exit code 1"}, True),
        ({"last_contains": "sort_numbers"}, False),
        ({"model": "m"}, True),
        ({"model": "other"}, False),
        ({"marker": "7-sort"}, True),
        ({"marker": "8-sort"}, False),
        ({"contains": "sort_numbers", "model": "other"}, False),
    ],
)
def test_a_rule_holds_when_all_its_conditions_do(when, holds):
    talk = prompt(
        ("system", "task_id: 7-sort"),
        ("user", "write sort_numbers(x)"),
        ("assistant", "a draft"),
        ("user", "exit code 1"),
    )
    assert (said(script({"when": when, "turns": ["yes"]}, marker=r"task_id: (\S+)"), talk) == "yes") is holds


def test_the_first_rule_that_holds_answers():
    rules = script({"when": {"contains": "b"}, "turns": ["B"]}, {"turns": ["any"]}, {"turns": ["never"]})
    assert said(rules, prompt(("user", "abc"))) == "B"
    assert said(rules, prompt(("user", "xyz"))) == "any"


def test_no_rule_means_no_answer():
    assert script({"when": {"contains": "b"}, "turns": ["B"]}).cue(prompt()) is None


@pytest.mark.parametrize(("then", "expected"), [("last", "a b b b b"), ("cycle", "a b a b a")])
def test_turns_are_counted_by_the_assistants_messages(then, expected):
    rules = script({"turns": ["a", "b"], "then": then})
    talks = [prompt(("user", "go"), *[("assistant", "x"), ("user", "on")] * turn) for turn in range(5)]
    assert " ".join(said(rules, talk) for talk in talks) == expected


def test_the_cue_names_the_rule_the_marker_and_the_turn():
    rules = script({"turns": ["x"]}, {"name": "sorting", "turns": ["x"]}, marker=r"id=(\d+)")
    cue = rules.cue(prompt(("user", "id=42"), ("assistant", "x")))
    assert (cue.rule, cue.marker, cue.turn) == ("1", "42", 1)


def test_a_fault_of_the_first_tries_passes_for_each_prompt_on_its_own():
    reply = {"text": "ok", "fault": {"kind": "status", "first_tries": 2}}
    rules, tries = script({"turns": [reply]}), Tries()
    outcomes = []
    for content in ("a", "a", "b", "a", "b", "b"):
        talk = prompt(("user", content))
        outcomes.append(tries.fault(rules.cue(talk), talk) is not None)
    assert outcomes == [True, True, True, False, True, False]


def test_a_script_is_read_from_json_and_from_jsonl(tmp_path):
    rules = [{"when": {"contains": "a\u2028b"}, "turns": ["one"]}, {"turns": [{"text": "two"}]}]
    (tmp_path / "s.json").write_text(json.dumps({"rules": rules}))
    (tmp_path / "s.jsonl").write_text(
        "\n".join(json.dumps(rule, ensure_ascii=False) for rule in rules) + "\n\n"
    )
    assert Script.load(tmp_path / "s.json") == Script.load(tmp_path / "s.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("s.json", "{", "is not JSON"),
        ("s.jsonl", '{"turns": ["x"]}\n{oops}\n', "is not JSON: line 2"),
        ("s.json", "[]", "valid dictionary"),
        ("s.json", '{"rules": []}', "rules: Tuple should have at least 1 item"),
        ("s.json", '{"rules": [{"turns": []}]}', r"rules\.0\.turns"),
        ("s.json", '{"rules": [{"turns": ["x"], "when": {"matches": "("}}]}', "not a regular expression"),
        ("s.json", '{"rules": [{"turns": ["x"]}], "marker": "id"}', "marker needs a group"),
        ("s.json", '{"rules": [{"turns": [{"fault": {"kind": "flood"}}]}]}', "kind"),
        (
            "s.json",
            '{"rules": [{"turns": [{"text": [{"repeat": "x", "times": 999999999}]}]}]}',
            "must stay below",
        ),
        ("s.json", b"\xff", "is not JSON"),
    ],
)
def test_a_broken_script_is_refused_with_its_place(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=problem) as caught:
        Script.load(tmp_path / name)
    assert all(str(tmp_path / name) in sentence for sentence in caught.value.problems)


def test_a_script_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        Script.load(tmp_path / "none.json")
