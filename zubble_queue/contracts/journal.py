"""The trial journal: what was tried, per task; it survives resets, resumes and dead workers (Z19, Z24)."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

COMMAND_CHARS: Final = 500
SUMMARY_CHARS: Final = 200

Category = Literal["diagnostic", "fix_attempt", "verification"]


class JournalEntry(BaseModel):
    """One trial."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = Field(ge=1)
    command: str = Field(max_length=COMMAND_CHARS)
    exit_code: int | None
    """None when it was killed or timed out."""
    result_summary: str = Field(max_length=SUMMARY_CHARS)
    category: Category
    model_note: str | None = Field(default=None, max_length=SUMMARY_CHARS)
    time: float
    """Seconds since the epoch."""
