"""What was spent, reserved and allowed, for a batch or for a tenant."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.record import OnCeiling

AccountKind = Literal["batch", "tenant"]


class BudgetView(BaseModel):
    """One account, all amounts in micro-USD."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: AccountKind
    name: str
    ceiling_micro_usd: int | None
    """None: no ceiling of its own."""
    settled_micro_usd: int
    reserved_micro_usd: int
    """Of calls that are being made now."""
    reached: bool
    """A call did not fit any more; nothing is fed until the ceiling is raised."""
    on_ceiling: OnCeiling | None
    """None for a tenant, whose batches decide."""
    by_model: FrozenMap[str, int] = Field(default_factory=dict, validate_default=True)
    by_outcome: FrozenMap[str, int] = Field(default_factory=dict, validate_default=True)
    """Of sealed tasks; what running and waiting ones spent is the rest of what is settled."""
