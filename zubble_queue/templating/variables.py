"""What a prompt template may use."""

from __future__ import annotations

from typing import Any, Final

from zubble_queue.contracts.envelope import TaskEnvelope

NAMES: Final = (
    *("place", "rules", "tools", "report_path", "work_dir", "task_id", "source_id", "task_type"),
    *("description", "success_criteria", "model", "level", "budget", "labels"),
)
"""As docs/how-to/protocols.md lists them."""


def variables(envelope: TaskEnvelope, *, place: str, rules: str) -> dict[str, Any]:
    """Plain data alone, by name; nothing that has methods worth calling."""
    task = envelope.task
    return {
        "place": place,
        "rules": rules,
        "tools": list(task.allowed_tools),
        "report_path": envelope.prompt.report_path,
        "work_dir": envelope.sandbox.work_dir or ".",
        "task_id": envelope.task_id,
        "source_id": envelope.source_id,
        "task_type": envelope.task_type,
        "description": task.description,
        "success_criteria": task.success_criteria,
        "model": envelope.model,
        "level": envelope.level,
        "budget": envelope.budget.model_dump(mode="json"),
        "labels": dict(envelope.labels),
    }
