"""When a claim of done is heard without a verify command."""

from __future__ import annotations

from zubble_queue.contracts.checking import CheckResult
from zubble_queue.contracts.ending import Verdict
from zubble_queue.contracts.sandbox import Sandbox, shell


class ReportChecker:
    """Implements contracts.checking.Checker by asking for the report alone; it judges no work."""

    def __init__(self, sandbox: Sandbox, report_there: str) -> None:
        self._sandbox, self._report_there = sandbox, report_there

    async def check(self) -> CheckResult:
        """Passed when there is a report."""
        result = await self._sandbox.exec(shell(self._report_there))
        return CheckResult(
            verdict=Verdict.PASSED if result.ok else Verdict.FAILED,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            output="",
            seconds=result.seconds,
        )
