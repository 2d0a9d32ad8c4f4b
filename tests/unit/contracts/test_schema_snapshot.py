"""The contract is frozen (B10): its JSON schemas change only together with this snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zubble_queue.contracts.task import LoopBudget, TaskInput, TaskOutput

SNAPSHOT = Path(__file__).with_name("contract-schemas.json")


def schemas() -> dict[str, Any]:
    return {
        record.__name__: _bare(record.model_json_schema()) for record in (TaskInput, LoopBudget, TaskOutput)
    }


def _bare(schema: Any) -> Any:
    """Without titles and descriptions, which are prose and may improve."""
    if isinstance(schema, dict):
        prose = {key for key in ("title", "description") if isinstance(schema.get(key), str)}
        return {key: _bare(value) for key, value in schema.items() if key not in prose}
    return [_bare(value) for value in schema] if isinstance(schema, list) else schema


def test_the_contract_is_what_the_snapshot_says():
    expected = json.loads(SNAPSHOT.read_text())
    assert schemas() == expected, (
        f"The contract changed. If that is meant, put the new schemas into {SNAPSHOT.name} "
        f"and the reason into CHANGELOG.md:\n{json.dumps(schemas(), indent=2)}"
    )


def test_the_snapshot_holds_every_field_of_the_contract():
    expected = json.loads(SNAPSHOT.read_text())
    assert list(expected["TaskInput"]["properties"]) == [
        "task_id",
        "description",
        "context_budget_tokens",
        "allowed_tools",
        "success_criteria",
        "verify_command",
    ]
    assert list(expected["LoopBudget"]["properties"]) == [
        "max_iterations",
        "max_tokens",
        "max_wallclock_seconds",
        "max_spend_usd",
    ]
    assert list(expected["TaskOutput"]["properties"]) == [
        "task_id",
        "files_touched",
        "lines_added",
        "lines_removed",
        "verify_passed",
        "worklog_entry",
        "spend_usd",
        "iterations_used",
        "aborted",
        "abort_reason",
    ]
