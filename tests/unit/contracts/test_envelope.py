"""An envelope survives the wire, knows who it is and what it says; its header shows no text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.envelope import BlobRef, FileEntry, Header, TaskEnvelope
from zubble_queue.contracts.task import LoopBudget

Make = Callable[..., TaskEnvelope]
BLOB = BlobRef(ref="sha256:" + "a" * 64, size=12)


def test_an_envelope_survives_the_wire(make_envelope: Make):
    envelope = make_envelope(
        instructions=BLOB,
        files=(FileEntry(path="src/a.py", blob=BLOB),),
        labels={"set": "a"},
        budget=LoopBudget(max_spend_usd=0.25),
        verify={"files": [FileEntry(path="check.py", blob=BLOB)], "timeout_seconds": 10},
    )
    assert TaskEnvelope.model_validate_json(envelope.model_dump_json()) == envelope


def test_an_envelope_refuses_an_id_that_is_not_its_own(make_envelope: Make):
    with pytest.raises(ValidationError, match="task_id must be"):
        make_envelope(task={"task_id": "7-somebody-else-0a1b2c3d"})


def test_the_hash_of_a_known_envelope_stays_what_it_was_in_every_release(make_envelope: Make):
    assert (
        make_envelope().content_hash() == "3833566333bc2a068d6cb4d6933b2c31bf8f2f1c62d8e6735d8eb07f9e9bc1d6"
    )


def test_a_default_that_is_said_aloud_does_not_change_the_hash(make_envelope: Make):
    aloud = make_envelope(
        task={"context_budget_tokens": 8_000}, budget=LoopBudget(max_iterations=20), level="off"
    )
    assert aloud.content_hash() == make_envelope().content_hash()


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": "other"},
        {"source_id": "HumanEval/1"},
        {"repeat": 2},
        {"labels": {"set": "b"}},
        {"version": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_does_not_decide_how_a_task_runs_does_not_change_its_hash(
    make_envelope: Make, changes: dict[str, Any]
):
    assert make_envelope(**changes).content_hash() == make_envelope().content_hash()


@pytest.mark.parametrize(
    "changes",
    [
        {"task": {"description": "Something else."}},
        {"task": {"context_budget_tokens": 4_000}},
        {"task": {"allowed_tools": ["shell", "read"]}},
        {"task": {"success_criteria": "It compiles."}},
        {"task": {"verify_command": "true"}},
        {"budget": LoopBudget(max_iterations=21)},
        {"instructions": "Be brief."},
        {"files": (FileEntry(path="a.py", blob=BLOB),)},
        {"model": "another"},
        {"level": "low"},
        {"temperature": 0.5},
        {"sandbox": {"memory_mb": 512}},
        {"sandbox": {"network": "open"}},
        {"sandbox": {"network": "allowlist", "allowed_hosts": ["example.org"]}},
        {"verify": {"network": "allowlist"}},
        {"sandbox": {"min_strength": "limits"}},
        {"verify": {"timeout_seconds": 60}},
        {"verify_each_step": True},
        {"preflight": "off"},
        {"task_type": "code"},
        {"tenant": "other"},
    ],
    ids=str,
)
def test_what_decides_how_a_task_runs_changes_its_hash(make_envelope: Make, changes: dict[str, Any]):
    assert make_envelope(**changes).content_hash() != make_envelope().content_hash()


def test_the_hosts_of_a_task_are_a_set_of_names_in_one_spelling(make_envelope: Make):
    written = make_envelope(
        sandbox={"network": "allowlist", "allowed_hosts": ["PyPI.org", "*.example.org", "pypi.org"]}
    )
    again = make_envelope(
        sandbox={"network": "allowlist", "allowed_hosts": ["*.Example.org", "pypi.org"]},
    )
    assert written.sandbox.allowed_hosts == ("*.example.org", "pypi.org")
    assert written.content_hash() == again.content_hash()
    assert written.verify.network == "none", "the check has a network of its own"


@pytest.mark.parametrize("phase", ["sandbox", "verify"])
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"allowed_hosts": ["example.org"]}, "allowed_hosts need network 'allowlist', not 'none'"),
        ({"network": "open", "allowed_hosts": ["example.org"]}, "allowed_hosts need network 'allowlist'"),
        ({"network": "allowlist", "allowed_hosts": ["10.0.0.1"]}, "'10.0.0.1' is an address, not a name"),
        ({"network": "allowlist", "allowed_hosts": "example.org"}, "valid tuple"),
        ({"network": "allowlist", "allowed_hosts": [f"h{n}.example" for n in range(257)]}, "at most 256"),
    ],
)
def test_a_network_that_makes_no_sense_is_refused(
    make_envelope: Make, phase: str, changes: dict[str, Any], problem: str
):
    with pytest.raises(ValidationError, match=problem):
        make_envelope(**{phase: changes})


def test_the_header_holds_no_text_of_the_task(make_envelope: Make):
    secret = "xyzzy"
    envelope = make_envelope(
        task=dict.fromkeys(("description", "success_criteria", "verify_command"), secret),
        instructions=secret,
    )
    assert secret not in envelope.header(epoch=1).model_dump_json()


def test_the_header_carries_ids_limits_and_labels(make_envelope: Make):
    envelope = make_envelope(labels={"set": "a"}, task_type="code")
    header = envelope.header(epoch=3, round_=2)
    assert (header.task_id, header.source_id, header.batch) == (envelope.task_id, "HumanEval/0", "demo")
    assert (header.attempt, header.round, header.push) == (3, 2, 1)
    assert (header.task_type, header.budget, dict(header.labels)) == ("code", envelope.budget, {"set": "a"})


def test_a_message_is_named_by_task_attempt_and_push(make_envelope: Make):
    header = make_envelope().header(epoch=3).model_copy(update={"push": 2})
    assert header.message_id == f"{header.task_id}.3.2"


def test_a_header_survives_the_wire(make_envelope: Make):
    header = make_envelope(labels={"set": "a"}).header(epoch=1)
    assert Header.model_validate_json(header.model_dump_json()) == header


def test_a_demanded_strength_is_part_of_the_need_and_none_is_not(make_envelope: Make):
    strong = make_envelope(sandbox={"min_strength": "kernel"})
    assert strong.header(epoch=1).need == strong.need
    assert strong.need.sandbox == "bubblewrap:kernel"
    assert make_envelope(sandbox={"min_strength": "none"}).need == make_envelope().need


@pytest.mark.parametrize("batch", ["", ".hidden", "a/b", "a b", "a:b", "x" * 101, "a\n", "{a}"])
def test_a_batch_has_a_name_that_is_safe_in_keys_and_paths(make_envelope: Make, batch: str):
    with pytest.raises(ValidationError, match="batch"):
        make_envelope(batch=batch)


def test_a_container_that_is_there_has_a_work_tree_of_its_own(make_envelope: Make):
    assert make_envelope(work_tree=BLOB).work_tree == BLOB
    with pytest.raises(ValidationError, match="an attached container has its own"):
        make_envelope(sandbox={"backend": "attached"}, verify={"location": "environment"}, work_tree=BLOB)


def test_what_the_work_tree_begins_with_is_part_of_the_content(make_envelope: Make):
    assert make_envelope(work_tree=BLOB).content_hash() != make_envelope().content_hash()
