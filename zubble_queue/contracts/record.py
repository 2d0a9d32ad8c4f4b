"""What Redis holds about batches, tasks, leases and workers, as the other parts see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from zubble_queue.contracts.ending import Ending, Usage
from zubble_queue.contracts.envelope import BlobRef, TaskEnvelope
from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.need import Need, sandbox_offers
from zubble_queue.contracts.question import Asked
from zubble_queue.contracts.sandbox import NetworkMode, Strength
from zubble_queue.contracts.tuning import Tuning

_VIEW = ConfigDict(frozen=True, extra="forbid")


class TaskState(StrEnum):
    """Where a task stands; how it ended is its ending's outcome."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    AWAITING_HUMAN = "awaiting_human"
    SEALED = "sealed"


class TaskView(BaseModel):
    """One task as people and programs see it."""

    model_config = _VIEW

    task_id: str
    batch: str
    source_id: str
    repeat: int
    state: TaskState
    round: int
    attempt: int
    """Leases taken so far in all; 0 before the first claim."""
    abnormal_ends: int
    """Leases that ended without a word, by a dead worker or a lost one, or by what nobody foresaw."""
    task_type: str
    model: str
    content_hash: str
    cancel_requested: bool
    worker: str
    """Holder of the lease while running, else the last one."""
    created_at: float
    claimed_at: float | None
    """First claim, seconds since the epoch by the server's clock."""
    sealed_at: float | None
    lease_until: float | None
    usage: Usage
    """Settled so far."""
    ending: Ending | None
    asked: Asked | None = None
    """The latest question to a person in this round."""

    @property
    def outcome(self) -> str | None:
        return self.ending.outcome if self.ending else None


class PastRound(BaseModel):
    """How an earlier round of a task ended; its seal stays as it was."""

    model_config = _VIEW

    round: int
    attempts: int
    """Leases taken up to its end, those of earlier rounds included."""
    worker: str
    claimed_at: float | None
    sealed_at: float | None
    usage: Usage
    """Settled in this round; one that went on from a blocked one holds that one's, too."""
    ending: Ending


MOST_USD: Final = 1_000_000
"""The highest ceiling of a batch or tenant."""
OnCeiling = Literal["pause", "seal"]
"""What becomes of tasks at the ceiling of their batch or tenant: `pause` keeps them until it is raised."""
Ceiling = Literal["batch_spend", "tenant_spend"]


class BatchInfo(BaseModel):
    """What a batch was created with."""

    model_config = _VIEW

    name: str
    tenant: str = "default"
    model: str = ""
    source: str = ""
    """The file's name, without its folder."""
    labels: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    max_spend_usd: float | None = Field(default=None, gt=0, le=MOST_USD, allow_inf_nan=False)
    """The ceiling of all its tasks together, at its creation; None: none. `zubble budget` changes it."""
    on_ceiling: OnCeiling = "pause"
    tuning: Tuning = Tuning()
    """At its creation; `zubble batch set` changes it."""


class PastAttempt(BaseModel):
    """An attempt that ended unverified and was tried again."""

    model_config = _VIEW

    attempt: int
    outcome: str
    reason: str
    iterations_used: int
    spend_micro_usd: int
    """Of the task, up to its end."""
    artifacts: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    """As of `Ending.artifacts`."""


class BatchView(BaseModel):
    """A batch's progress, read in O(1) from its counters."""

    model_config = _VIEW

    info: BatchInfo
    state: Literal["loading", "open", "paused", "cancelled", "done"]
    """`done`: every task of it is sealed; `paused`: nothing of it is begun until it is resumed."""
    tuning: Tuning = Tuning()
    created_at: float
    total: int
    states: FrozenMap[str, int]
    """Tasks by TaskState."""
    outcomes: FrozenMap[str, int]
    """Sealed tasks by outcome."""
    usage: Usage
    tokens_saved: int
    phase_seconds: FrozenMap[str, float]
    """Sums over sealed tasks of Ending.seconds."""
    on_ceiling: OnCeiling = "pause"
    ceiling_reached: Ceiling | None = None
    """What keeps its waiting tasks from being fed, until it is raised."""
    repeats: int = 1
    """The highest repeat of a task."""
    requeues: int
    """Leases that were reaped or released; each is one attempt more than a quiet run needs."""

    @property
    def sealed(self) -> int:
        return self.states.get(TaskState.SEALED, 0)


class WorkerInfo(BaseModel):
    """What a worker registers, with a TTL, and renews."""

    model_config = _VIEW

    worker_id: str
    version: str
    host: str
    pid: int
    slots: int
    busy: int
    pools: Annotated[tuple[str, ...], Strict(strict=False)] = ("default",)
    models: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    """Name to the non-secret hash of its definition."""
    sandboxes: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    strengths: FrozenMap[str, Strength] = Field(default_factory=dict, validate_default=True)
    """Backend to what its probe found; `none` where it is left out."""
    networks: Annotated[tuple[NetworkMode, ...], Strict(strict=False)] = ("none",)
    """What its settings let a task ask for."""
    feeder: bool = True
    started_at: float = 0.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the needs it serves; each has a queue of messages of its own."""
        sandboxes = [
            offer
            for name in self.sandboxes
            for offer in sandbox_offers(name, self.strengths.get(name, "none"))
        ]
        return tuple(sorted(Need(*need).key for need in product(self.pools, sandboxes, self.models)))


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a submission created, found, or refused."""

    created: int
    existing: int
    conflicts: tuple[str, ...] = ()
    """source_ids whose content differs from what is stored."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a task; its token guards every write."""

    task_id: str
    batch: str
    epoch: int
    lease_id: str
    """Random, 128 bits, hex."""
    round: int = 1

    @property
    def token(self) -> str:
        return f"{self.epoch}:{self.lease_id}"


class Checkpoint(BaseModel):
    """From where the next attempt can go on."""

    model_config = _VIEW

    seq: int = Field(ge=0)
    """Events up to this one are what the next attempt replays."""
    snapshot: BlobRef | None = None
    """Work tree after that event."""
    segments: Annotated[tuple[BlobRef, ...], Strict(strict=False)] = ()
    """JSONL blobs that hold the event log up to `seq`, in order."""
    artifacts: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    """What the work tree amounts to (patch, changed_files), where the attempt ended with this checkpoint."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A granted lease and everything needed to start or to go on."""

    lease: Lease
    envelope: TaskEnvelope
    usage: Usage
    """Settled by earlier attempts of this round."""
    wallclock_used_seconds: float
    """Charged to earlier attempts of this round."""
    checkpoint: Checkpoint | None
    last_seq: int
    """The next event of this task gets last_seq + 1."""
    previous_end: Literal["none", "lost", "released", "retried"]
    """How the attempt before ended."""
    retries_left: int = 0
    """How often an attempt that ends unverified may be followed by another one."""
    waited_seconds: float = 0.0
    """Since the submission, or since it was put among the waiting ones again."""
    past: tuple[PastAttempt, ...] = ()
    """How the attempts ended that were followed by this one."""
    asked: Asked | None = None
    """What an earlier attempt of this round asked a person last, with the answer."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A granted lease of a task that cannot be run as its record stands; it is to be sealed `invalid`."""

    lease: Lease
    problem: str
    """What is wrong with the envelope, as one sentence."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that must be dropped."""

    reason: Literal["unknown", "sealed", "cancelled", "leased", "doubled", "stale", "paused", "version"]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a heartbeat brings back."""

    held: bool
    """False: the lease is lost; write nothing more."""
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation that was granted, by its id."""

    call_id: str
    micro_usd: int
    """What was reserved; less than asked for where the ceiling of the batch or tenant allows no more."""


@dataclass(frozen=True, slots=True)
class Parked:
    """Not now: other calls' open reservations are in the way. Ask again after the next settlement."""

    limit: Ceiling


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A reservation that was refused, and what is left."""

    limit: Literal["tokens", "spend", "batch_spend", "tenant_spend"]
    left: int
    """Tokens or micro-USD that are neither settled nor reserved."""
    pauses: bool = False
    """Whether the task is to wait until the ceiling is raised, instead of ending."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one sweep over expired leases did."""

    requeued: tuple[str, ...]
    stuck: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """What one reconciliation found and mended."""

    reannounced: tuple[str, ...]
    """Announced tasks whose message was lost, by task id."""
    orphans: tuple[str, ...]
    """Index entries without a record."""
    miscounted: tuple[str, ...]
    """Batches whose counters disagreed with their members."""
