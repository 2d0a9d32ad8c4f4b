"""What an agent is told about the kind of work, beside its task."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RepairProtocol:
    """Find the cause, repair it, prove it, and leave a report in a file (Z10).

    Args:
        report_path: Where the report is to be, in the place where commands run; a relative path is in the
            work tree. A claim of done without a report there is not accepted.
        replies: How the model answers: one JSON object, or text with fenced blocks.
    """

    report_path: str = "/findings/report.md"
    replies: Literal["structured", "text"] = "structured"

    @property
    def success_criteria(self) -> str:
        """At most 300 characters."""
        return f"What is broken works again, and {self.report_path} holds the report."[:300]

    @property
    def report_there(self) -> str:
        """A shell command that exits with 0 when there is a report."""
        return f"test -s {shlex.quote(self.report_path)}"

    @property
    def show_report(self) -> str:
        """A shell command that prints the report."""
        return f"cat {shlex.quote(self.report_path)}"
