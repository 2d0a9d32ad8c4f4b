"""A record is frozen through and through: attributes, lists and mappings (C19)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.ending import Ending, Stop, Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.task import LoopBudget, TaskInput, TaskOutput


def test_no_attribute_of_a_task_can_be_set(make_task: Callable[..., TaskInput]):
    task = make_task()
    for name in TaskInput.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(task, name, getattr(task, name))


def test_no_attribute_of_a_budget_can_be_set():
    budget = LoopBudget()
    for name in LoopBudget.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(budget, name, 1)


def test_the_whitelist_cannot_grow(make_task: Callable[..., TaskInput]):
    given = ["shell"]
    task = make_task(allowed_tools=given)
    given.append("write")
    assert task.allowed_tools == ("shell",)
    assert not hasattr(task.allowed_tools, "append")


def test_the_touched_files_of_an_output_cannot_grow():
    output = TaskOutput(task_id="7-add", files_touched=["a.py"])
    assert output.files_touched == ("a.py",)
    with pytest.raises(ValidationError, match="frozen"):
        output.verify_passed = True


def test_labels_cannot_be_changed_in_place(make_envelope: Callable[..., TaskEnvelope]):
    given = {"set": "a"}
    envelope = make_envelope(labels=given)
    given["set"] = "b"
    assert dict(envelope.labels) == {"set": "a"}
    with pytest.raises(TypeError):
        envelope.labels["set"] = "b"


def test_labels_that_were_left_out_cannot_be_changed_either(make_envelope: Callable[..., TaskEnvelope]):
    with pytest.raises(TypeError):
        make_envelope().labels["set"] = "b"


def test_a_budget_inside_an_envelope_cannot_be_raised(make_envelope: Callable[..., TaskEnvelope]):
    envelope = make_envelope()
    with pytest.raises(ValidationError, match="frozen"):
        envelope.budget.max_spend_usd = 50.0
    with pytest.raises(ValidationError, match="frozen"):
        envelope.budget = LoopBudget(max_spend_usd=50.0)


def test_an_ending_cannot_be_rewritten():
    ending = Ending(stop=Stop.SUBMITTED, evidence={"token": 47}, usage=Usage(calls=1))
    with pytest.raises(ValidationError, match="frozen"):
        ending.reward = 1.0
    with pytest.raises(ValidationError, match="frozen"):
        ending.usage.calls = 0
    with pytest.raises(TypeError):
        ending.evidence["token"] = 0
