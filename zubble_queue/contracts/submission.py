"""What a reader makes of the user's files, and what the dispatcher takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zubble_queue.contracts.envelope import (
    Guard,
    Level,
    ProtocolName,
    Repetition,
    SandboxRequest,
    TaskEnvelope,
)
from zubble_queue.contracts.memory import MemoryMode
from zubble_queue.contracts.question import AskRequest
from zubble_queue.contracts.record import BatchInfo
from zubble_queue.contracts.task import LoopBudget


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """What the flags of a submission say about every task that does not say it itself."""

    batch: str
    model: str
    level: Level = "off"
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    budget: LoopBudget = field(default_factory=LoopBudget)
    sandbox: SandboxRequest = field(default_factory=SandboxRequest)
    network_said: bool = False
    """Whether the flags name a network; a format with another default keeps that where they do not."""
    repeats: int = 1
    memory: MemoryMode = "write"
    protocol: ProtocolName = "structured"
    max_steps: int = 0
    max_turn_secs: int = 0
    guards: tuple[Guard, ...] = ()
    repetition: Repetition = "graduated"
    ask: AskRequest = field(default_factory=AskRequest)
    pool: str = "default"
    tenant: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parcel:
    """An envelope and the content its references name."""

    envelope: TaskEnvelope
    blobs: Mapping[str, bytes]
    """Reference (`sha256:…`) to content."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch to be submitted."""

    batch: BatchInfo
    parcels: Sequence[Parcel]
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its tuning that were asked for: set also where the batch is there already."""


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """What a submission did, or with `dry_run` would do."""

    batch: str
    total: int
    created: int
    existing: int
    budget_usd: float
    """Sum of max_spend_usd over the new tasks: the most they can cost."""
    dry_run: bool
