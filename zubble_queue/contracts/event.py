"""Events: the raw, append-only record of a task. What the model sees is a view derived from them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Event(BaseModel):
    """One thing that happened, in JSON: `{"seq", "time", "attempt", "type", "data"}`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int = Field(ge=0)
    """Position in the task's log; dense from 1 within the task, given by whoever appends."""
    time: float
    """Seconds since the epoch."""
    attempt: int = Field(ge=0)
    """The epoch that wrote it; 0 before the first claim."""
    type: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    data: dict[str, Any] = Field(default_factory=dict)
