"""What of a batch may be changed while it runs: its share of the slots, and how often a task is tried."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Tuning(BaseModel):
    """A batch's place among the others, and its retries (docs/queue.md says how they work together)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = Field(default=1.0, ge=0.01, le=100.0, allow_inf_nan=False)
    """Its share of the slots, against the weights of the other batches of its priority."""
    priority: int = Field(default=0, ge=-10, le=10)
    """Batches of a higher one go first; a batch that waits rises by one every AGEING_SECONDS."""
    concurrency: int = Field(default=0, ge=0, le=1_000_000)
    """The most tasks of it that run at the same time; 0: as many as there are slots."""
    max_retries: int = Field(default=0, ge=0, le=10)
    """How often a task that ends unverified is tried again, within what is left of its budget."""
