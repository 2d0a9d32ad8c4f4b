"""Memory across runs: what a sealed run leaves for later runs of its task type (Z24, C46).

Everything in it was written by models and by what their commands printed. Nobody has checked it: whoever
shows it to a model quotes it as data.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from zubble_queue.contracts.journal import SUMMARY_CHARS, JournalEntry

MEMORY_ENTRY_BYTES: Final = 8_192
"""The most one run may leave, as JSON."""
MEMORY_ENTRIES: Final = 50
"""Runs that are remembered per task type, the newest."""

MemoryMode = Literal["off", "read", "write", "both"]
"""`read`: earlier runs are quoted in the first prompt; `write`: this run is kept for later ones."""


class MemoryEntry(BaseModel):
    """One run as later runs may know it, and where it came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_type: str
    batch: str
    task_id: str
    source_id: str
    repeat: int
    round: int
    model: str
    outcome: str
    time: float
    """Of the seal, in seconds since the epoch."""
    report: str = Field(default="", max_length=SUMMARY_CHARS)
    """The agent's own, cut."""
    trials: Annotated[tuple[JournalEntry, ...], Strict(strict=False)] = ()
    """The last ones of its journal, as many as fit."""

    @property
    def entry_id(self) -> str:
        """`<task_id>.<round>`: a round is sealed once, so the id is unique."""
        return f"{self.task_id}.{self.round}"


class MemoryUse(BaseModel):
    """What a run had of memory, for its record."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    mode: MemoryMode = "off"
    read: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    """Ids of the entries that were quoted in its prompt."""


class MemoryView(BaseModel):
    """What is remembered of one task type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_type: str
    entries: int
    bytes: int
    newest: float
    """When the last run was added, in seconds since the epoch by the server's clock."""


def reads(mode: MemoryMode) -> bool:
    return mode in {"read", "both"}


def writes(mode: MemoryMode) -> bool:
    return mode in {"write", "both"}


def namespace(task_type: str) -> str:
    """Where the facts about a task type are (B5)."""
    return f"memory:{task_type}"
