"""TaskInput, LoopBudget, TaskOutput: the bounded-loop contract (B1..B3), frozen.

The three are kept by a schema snapshot test; a change names its reason in CHANGELOG.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, Strict

TASK_ID_PATTERN: Final = r"^[0-9]+-[a-z0-9-]+$"
ACTUATORS: Final = ("shell", "read", "write", "edit", "list", "run_tests", "wait")
"""The tools an agent may be allowed (C42)."""

STRICT_FROZEN: Final = ConfigDict(strict=True, frozen=True, extra="forbid")


class TaskInput(BaseModel):
    """What the agent is asked to do (B1)."""

    model_config = STRICT_FROZEN

    task_id: str = Field(pattern=TASK_ID_PATTERN, max_length=120)
    """Unique: `<n>-<slug>-<8 hex>`, derived by `identity.task_id`."""
    description: str = Field(min_length=1, max_length=500)
    """One paragraph; longer instructions travel in the envelope."""
    context_budget_tokens: int = Field(default=8_000, ge=1, le=32_000)
    """Bound on the opening prompt: instructions, facts and memory together."""
    allowed_tools: Annotated[tuple[str, ...], Strict(strict=False)] = Field(min_length=1)
    """Whitelist of actuators; a call of anything else ends the run as `limit:allowed_tools`."""
    success_criteria: str = Field(min_length=1, max_length=300)
    """What done means, in words the model reads."""
    verify_command: str = Field(min_length=1, max_length=200)
    """Shell command; exit code 0 means the criteria are met."""


class LoopBudget(BaseModel):
    """Four kill switches, checked before every iteration and reserved before every call (B2)."""

    model_config = STRICT_FROZEN

    max_iterations: int = Field(default=20, ge=1, le=100)
    max_tokens: int = Field(default=50_000, ge=1, le=500_000)
    """Provider-reported prompt + completion tokens; reasoning is inside completion (C43)."""
    max_wallclock_seconds: int = Field(default=900, ge=1, le=3_600)
    """From the first claim over all attempts; waiting that is not the agent's is not charged (C50)."""
    max_spend_usd: float = Field(default=5.0, gt=0.0, le=50.0, allow_inf_nan=False)


class TaskOutput(BaseModel):
    """How it ended, in the contract's words (B3)."""

    model_config = STRICT_FROZEN

    task_id: str
    files_touched: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    lines_added: int = Field(default=0, ge=0)
    lines_removed: int = Field(default=0, ge=0)
    verify_passed: bool = False
    worklog_entry: str = ""
    spend_usd: float = Field(default=0.0, ge=0.0)
    iterations_used: int = Field(default=0, ge=0)
    aborted: bool = False
    abort_reason: str | None = None
