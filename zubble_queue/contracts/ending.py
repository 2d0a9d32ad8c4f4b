"""How a task ends: stop, verdict, reward; the outcome and TaskOutput are derived from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, Strict

from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.memory import MemoryUse
from zubble_queue.contracts.task import TaskInput, TaskOutput

MICRO: Final = 1_000_000
"""Money is counted in whole micro-USD."""


class Stop(StrEnum):
    """Why the agent stopped."""

    SUBMITTED = "submitted"
    GAVE_UP = "gave_up"
    LIMIT_ITERATIONS = "limit:iterations"
    LIMIT_TOKENS = "limit:tokens"
    LIMIT_WALLCLOCK = "limit:wallclock"
    LIMIT_SPEND = "limit:spend"
    LIMIT_ALLOWED_TOOLS = "limit:allowed_tools"
    LIMIT_CONTEXT = "limit:context"
    LIMIT_MAX_STEPS = "limit:max_steps"
    LIMIT_MAX_TURN_SECS = "limit:max_turn_secs"
    LIMIT_BATCH_SPEND = "limit:batch_spend"
    LIMIT_TENANT_SPEND = "limit:tenant_spend"
    LOOP_TEXT = "loop:text"
    LOOP_ACTION = "loop:action"
    LOOP_STALL = "loop:stall"
    PARSE_ERROR = "parse_error"
    BLOCKED = "blocked"
    MODEL_STOP = "model_stop"
    STUCK = "stuck"
    INFRA = "infra"
    INVALID = "invalid"
    CANCELLED = "cancelled"


class Verdict(StrEnum):
    """What the check said."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """The check itself could not be run to its end."""
    NOT_RUN = "not_run"


UNVERIFIED_STOPS: Final = frozenset({Stop.CANCELLED, Stop.INFRA, Stop.INVALID, Stop.STUCK})
"""Stops after which there is no work tree to judge; verify runs at every other stop."""


class Usage(BaseModel):
    """What a run consumed; all counts provider-reported unless `estimated_calls` says otherwise."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    calls: int = Field(default=0, ge=0)
    estimated_calls: int = Field(default=0, ge=0)
    """Calls whose usage the provider did not report (cut, timed out, lost)."""
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    """Part of prompt_tokens."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """Part of completion_tokens."""
    spend_micro_usd: int = Field(default=0, ge=0)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Ending(BaseModel):
    """The one record a run ends in."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    stop: Annotated[Stop, Strict(strict=False)]
    verdict: Annotated[Verdict, Strict(strict=False)] = Verdict.NOT_RUN
    reward: float | FrozenMap[str, float] | None = None
    reason: str = Field(default="", max_length=1_000)
    """One sentence for people."""
    report: str = Field(default="", max_length=2_000)
    """The agent's own single-line report, quoted, never trusted."""
    evidence: FrozenMap[str, Any] = Field(default_factory=dict, validate_default=True)
    """What a detector or checker saw."""
    usage: Usage = Usage()
    iterations_used: int = Field(default=0, ge=0)
    tokens_saved: int = Field(default=0, ge=0)
    """Tokens a cut stream could still have produced: its max_tokens less what came."""
    seconds: FrozenMap[str, float] = Field(default_factory=dict, validate_default=True)
    """Time by phase: open, model, exec, verify, parked (waiting for others); `wallclock`: as charged."""
    files_touched: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    lines_added: int = Field(default=0, ge=0)
    lines_removed: int = Field(default=0, ge=0)
    isolation: str = ""
    """The sandbox that was really there, and what the worker allowed beyond it: `bubblewrap`, `local`,
    `docker, network open`."""
    memory: MemoryUse = MemoryUse()
    artifacts: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    """Name to reference: trajectory; and where the agent did anything: work_tree, patch, changed_files,
    report."""

    @property
    def outcome(self) -> str:
        """`verified`, `failed`, or the stop itself."""
        if self.verdict is Verdict.PASSED:
            return "verified"
        return "failed" if self.stop in {Stop.SUBMITTED, Stop.GAVE_UP} else self.stop.value

    @property
    def aborted(self) -> bool:
        return self.outcome not in {"verified", "failed"}

    @property
    def spend_usd(self) -> float:
        return self.usage.spend_micro_usd / MICRO

    def output(self, task: TaskInput) -> TaskOutput:
        """The ending in the contract's words (B3), with its worklog entry (B9)."""
        return TaskOutput(
            task_id=task.task_id,
            files_touched=self.files_touched,
            lines_added=self.lines_added,
            lines_removed=self.lines_removed,
            verify_passed=self.verdict is Verdict.PASSED,
            worklog_entry=self._worklog_entry(task),
            spend_usd=self.spend_usd,
            iterations_used=self.iterations_used,
            aborted=self.aborted,
            abort_reason=(self.reason or self.outcome) if self.aborted else None,
        )

    def _worklog_entry(self, task: TaskInput) -> str:
        because = f" (reason: {self.reason or self.outcome})" if self.aborted else ""
        lines = (
            ("task_id", task.task_id),
            ("description", task.description),
            ("iterations_used", self.iterations_used),
            ("tokens_used", self.usage.tokens),
            ("spend_usd", f"${self.spend_usd:.3f}"),
            ("files_touched", len(self.files_touched)),
            ("lines_added", self.lines_added),
            ("lines_removed", self.lines_removed),
            ("aborted", f"{self.aborted}{because}"),
        )
        return "\n".join(f"{label}: {' '.join(str(value).split())}" for label, value in lines)
