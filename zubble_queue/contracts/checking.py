"""What the loop asks of verification: is the claim true?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from zubble_queue.contracts.ending import Verdict
from zubble_queue.contracts.sandbox import HostUse


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One run of the verify command on a frozen copy of the work tree."""

    verdict: Verdict
    exit_code: int | None
    timed_out: bool
    output: str
    """Head and tail of what the check printed; for the record, never for the model."""
    seconds: float
    host_uses: tuple[HostUse, ...] = ()
    """Of the check's own network."""
    reward: float | dict[str, float] | None = None
    """What the work is worth: what the check wrote, else 1 or 0 by its exit code; None in error."""
    error: str = ""
    """One sentence, where the verdict is error."""

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED

    def as_dict(self) -> dict[str, Any]:
        """As its event holds it."""
        return asdict(self) | {"verdict": self.verdict.value}


class Checker(Protocol):
    """Runs the verify command in a fresh sandbox. Raises SandboxUnavailable when there is none to be had."""

    async def check(self) -> CheckResult:
        """Judge the work tree as it is now; the same tree is judged only once."""
