"""A valid record of each kind, to be varied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zubble_queue.contracts import identity
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.task import TaskInput

TASK: dict[str, Any] = {
    "task_id": "7-add-two-numbers-0a1b2c3d",
    "description": "Write add(a, b) in solution.py.",
    "allowed_tools": ["shell"],
    "success_criteria": "The check passes.",
    "verify_command": "python3 /verify/check.py",
}


@pytest.fixture
def make_task() -> Callable[..., TaskInput]:
    def make(**changes: Any) -> TaskInput:
        return TaskInput(**(TASK | changes))

    return make


@pytest.fixture
def make_envelope() -> Callable[..., TaskEnvelope]:
    """Task fields go in `task`; the id follows from batch, source_id and repeat."""

    def make(task: dict[str, Any] | None = None, **changes: Any) -> TaskEnvelope:
        fields = {"batch": "demo", "source_id": "HumanEval/0", "repeat": 1, "model": "mock"} | changes
        own_id = identity.task_id(fields["batch"], fields["source_id"], fields["repeat"])
        return TaskEnvelope(task=TaskInput(**(TASK | {"task_id": own_id} | (task or {}))), **fields)

    return make
