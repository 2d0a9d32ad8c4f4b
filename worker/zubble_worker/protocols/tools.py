"""How the model is told what each tool takes."""

from __future__ import annotations

from typing import Final

SHAPES: Final = {
    "read": '{"path": "file", "offset": 1, "limit": 2000}',
    "write": '{"path": "file", "content": "..."}',
    "edit": '{"path": "file", "old": "text that stands there exactly once", "new": "..."}',
    "list": '{"path": "folder"}',
    "run_tests": "{}",
    "wait": '{"seconds": 30, "until": "shell command that exits with 0, optional"}',
}
"""Arguments by tool, as an example."""
