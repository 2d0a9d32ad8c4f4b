"""Nothing outside the contract's bounds is accepted (B1, B2, C19)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.envelope import FileEntry, SandboxRequest, TaskEnvelope, VerifySpec
from zubble_queue.contracts.task import LoopBudget, TaskInput, TaskOutput

CEILINGS = {
    "max_iterations": 100,
    "max_tokens": 500_000,
    "max_wallclock_seconds": 3_600,
    "max_spend_usd": 50.0,
}
DIGEST = "sha256:" + "0" * 64


def test_a_budget_without_words_is_the_default_one():
    assert LoopBudget().model_dump() == {
        "max_iterations": 20,
        "max_tokens": 50_000,
        "max_wallclock_seconds": 900,
        "max_spend_usd": 5.0,
    }


@pytest.mark.parametrize("name", CEILINGS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, True, False, "20", None])
def test_a_budget_that_is_no_positive_number_is_refused(name: str, value: Any):
    with pytest.raises(ValidationError, match=name):
        LoopBudget(**{name: value})


@pytest.mark.parametrize(("name", "ceiling"), CEILINGS.items())
def test_a_budget_reaches_its_ceiling_and_not_further(name: str, ceiling: float):
    assert getattr(LoopBudget(**{name: ceiling}), name) == ceiling
    with pytest.raises(ValidationError, match=name):
        LoopBudget(**{name: ceiling + 1})


@pytest.mark.parametrize("name", ["max_iterations", "max_tokens", "max_wallclock_seconds"])
def test_a_count_is_a_whole_number(name: str):
    with pytest.raises(ValidationError, match=name):
        LoopBudget(**{name: 2.5})


def test_a_spend_may_be_given_in_whole_dollars():
    assert LoopBudget(max_spend_usd=5).max_spend_usd == 5.0


@pytest.mark.parametrize(
    ("field", "longest"), [("description", 500), ("success_criteria", 300), ("verify_command", 200)]
)
def test_a_text_of_the_task_has_a_length(make_task: Callable[..., TaskInput], field: str, longest: int):
    assert len(getattr(make_task(**{field: "x" * longest}), field)) == longest
    with pytest.raises(ValidationError, match=field):
        make_task(**{field: "x" * (longest + 1)})
    with pytest.raises(ValidationError, match=field):
        make_task(**{field: ""})


@pytest.mark.parametrize("value", [0, -1, 32_001, 1.5, math.nan, True])
def test_a_context_budget_outside_its_bounds_is_refused(make_task: Callable[..., TaskInput], value: Any):
    with pytest.raises(ValidationError, match="context_budget_tokens"):
        make_task(context_budget_tokens=value)


@pytest.mark.parametrize("tools", [[], (), "shell", [1], None])
def test_a_whitelist_is_a_list_of_at_least_one_name(make_task: Callable[..., TaskInput], tools: Any):
    with pytest.raises(ValidationError, match="allowed_tools"):
        make_task(allowed_tools=tools)


@pytest.mark.parametrize(
    "task_id",
    [
        "HumanEval/0",
        "1-Upper-case",
        "add-two",
        "7_add",
        "7-",
        "",
        " 7-add",
        "7-add\n",
        "\u0661-add",  # an Arabic-Indic one is a digit to \d, not to the contract
        "\uff17-add",  # a full-width seven too
        "7-\u00e4dd",
        "7-" + "a" * 119,
    ],
)
def test_an_id_outside_the_pattern_is_refused(make_task: Callable[..., TaskInput], task_id: str):
    with pytest.raises(ValidationError, match="task_id"):
        make_task(task_id=task_id)


@pytest.mark.parametrize(
    "record", [TaskInput, LoopBudget, TaskOutput, TaskEnvelope, SandboxRequest, VerifySpec]
)
def test_an_unknown_field_is_refused(record: Any):
    with pytest.raises(ValidationError, match="surprise"):
        record(surprise=1)


def test_an_output_counts_nothing_below_zero():
    for name in ("lines_added", "lines_removed", "iterations_used", "spend_usd"):
        with pytest.raises(ValidationError, match=name):
            TaskOutput(**{"task_id": "7-add", name: -1})


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../up", "a/../b", "./a", "a//b", "a/", "", "nul\0byte", "."]
)
def test_a_file_cannot_be_placed_outside_its_folder(path: str):
    with pytest.raises(ValidationError, match="path"):
        FileEntry(path=path, blob={"ref": DIGEST, "size": 0})


def test_a_file_below_its_folder_is_placed():
    assert FileEntry(path="src/..hidden/a.py", blob={"ref": DIGEST, "size": 0}).path == "src/..hidden/a.py"


@pytest.mark.parametrize(
    "ref", ["sha256:" + "0" * 63, "sha256:" + "A" * 64, "md5:" + "0" * 64, DIGEST + "\n"]
)
def test_a_reference_is_a_digest(ref: str):
    with pytest.raises(ValidationError, match="ref"):
        FileEntry(path="a.py", blob={"ref": ref, "size": 0})


@pytest.mark.parametrize(
    "limits",
    [
        {"memory_mb": 0},
        {"work_mb": -1},
        {"pids": 1},
        {"command_timeout_seconds": 0},
        {"command_timeout_seconds": 3_601},
        {"network": "host"},
    ],
)
def test_a_sandbox_cannot_be_asked_for_without_limits(limits: dict[str, Any]):
    with pytest.raises(ValidationError, match=next(iter(limits))):
        SandboxRequest(**limits)


@pytest.mark.parametrize(
    "name",
    ["privileged", "mounts", "volumes", "host_pid", "hostPID", "pid_mode", "docker_sock", "cap_add", "user"],
)
def test_a_sandbox_has_no_way_out_to_be_asked_for(name: str):
    with pytest.raises(ValidationError, match=f"{name}: no task may reach out of its sandbox"):
        SandboxRequest(**{name: True})


@pytest.mark.parametrize("temperature", [-0.1, 2.1, math.nan, math.inf])
def test_a_temperature_outside_its_bounds_is_refused(
    make_envelope: Callable[..., TaskEnvelope], temperature: float
):
    with pytest.raises(ValidationError, match="temperature"):
        make_envelope(temperature=temperature)


def test_long_instructions_must_travel_as_a_reference(make_envelope: Callable[..., TaskEnvelope]):
    with pytest.raises(ValidationError, match="reference"):
        make_envelope(instructions="\u00e4" * 5_000)
