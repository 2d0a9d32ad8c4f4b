"""Caps and guards: from flag, environment or task line into the envelope; refused where they are wrong."""

from __future__ import annotations

import json

import pytest

from zubble_queue.cli import main
from zubble_queue.cli.defaults import task_defaults
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.errors import BadInput
from zubble_queue.formats import envelopes

TASK = {"id": "a", "description": "x", "verify": {"command": "true"}}


@pytest.fixture
def read(tmp_path):
    """The envelope of one task line."""

    def read(line=TASK, **flags):
        path = tmp_path / "tasks.jsonl"
        path.write_text(json.dumps(line))
        defaults = task_defaults(batch="b", model="m", budget=LoopBudget(), **flags)
        (parcel,) = envelopes.read(path, defaults)
        return parcel.envelope

    return read


@pytest.fixture
def submit(tmp_path, monkeypatch, capsys):
    """A dry run's exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zubble.toml").write_text('[models.m]\nbase_url = "http://127.0.0.1:1/v1"\nprice = "free"\n')
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK))

    def submit(*flags):
        code = main(["batch", "submit", "tasks.jsonl", "--model", "m", "--dry-run", "--json", *flags])
        said = capsys.readouterr()
        return code, said.out + said.err

    return submit


def test_by_default_there_is_no_cap_and_no_guard(read):
    envelope = read()

    assert (envelope.max_steps, envelope.max_turn_secs, envelope.guards) == (0, 0, ())


def test_what_a_task_says_goes_before_the_flags(read):
    flags = {"max_steps": 50, "max_turn_secs": 600, "guards": ("no-progress",)}
    own = {"max_steps": 0, "guards": ["tool-cycle"], "max_context_resets": 1}

    assert read(**flags).max_turn_secs == 600
    envelope = read(TASK | own, **flags)

    assert (envelope.max_steps, envelope.max_turn_secs, envelope.max_context_resets) == (0, 600, 1)
    assert envelope.guards == ("tool-cycle",)


def test_a_cap_changes_what_is_run_and_none_changes_nothing(read):
    assert read(max_steps=5).content_hash() != read().content_hash()
    assert read(max_steps=0).content_hash() == read().content_hash()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"max_steps": -1}, "--max-steps must be between 0 and 10,000, got -1."),
        ({"max_turn_secs": 86_401}, "--max-turn-secs must be between 0 and 86,400, got 86401."),
        ({"guards": ("loop",)}, "--guard must be one of tool-cycle, error-cascade,"),
    ],
)
def test_a_wrong_flag_is_told_in_one_sentence(read, flags, problem):
    with pytest.raises(BadInput) as caught:
        read(**flags)

    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(problem)


def test_the_environment_gives_a_cap_where_the_flag_is_left_out(submit, monkeypatch):
    bare, capped = submit(), submit("--max-steps", "7")
    monkeypatch.setenv("ZUBBLE_MAX_STEPS", "7")

    assert bare[0] == capped[0] == 0
    assert submit() == capped
    assert capped != bare, "a batch with a cap has another name"


@pytest.mark.parametrize("name", ["ZUBBLE_MAX_STEPS", "ZUBBLE_MAX_TURN_SECS"])
def test_a_cap_in_the_environment_that_is_no_number_is_refused(submit, monkeypatch, name):
    monkeypatch.setenv(name, "many")

    code, said = submit()

    assert code == 2
    assert "Traceback" not in said


def test_an_unknown_guard_in_a_task_line_is_named_with_its_field(read):
    with pytest.raises(BadInput) as caught:
        read(TASK | {"guards": ["loop"]})

    assert "guards" in caught.value.problems[0]


def test_a_task_meets_the_graduated_profile_unless_flag_or_line_says_strict(read):
    assert read().repetition == "graduated"
    assert read(repetition="strict").repetition == "strict"
    assert read(TASK | {"repetition": "graduated"}, repetition="strict").repetition == "graduated"
    assert read().content_hash() == read(TASK | {"repetition": "graduated"}).content_hash()


def test_an_unknown_profile_is_refused_by_name(read):
    with pytest.raises(BadInput, match="--repetition must be one of graduated, strict, not 'gentle'"):
        read(repetition="gentle")
