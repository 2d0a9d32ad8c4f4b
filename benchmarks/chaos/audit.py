"""What the server was told about each task: its append-only file read, not the queue's own views.

This is the only place that knows how the store lays its records out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from zubble_queue.stores.keys import Keys

_MICRO: Final = 1_000_000
_OF_THE_STORE: Final = frozenset({"accepted", "lease_lost", "released", "postponed", "tried_again", "sealed"})
"""Events that the store writes itself, inside the script that ends or begins a state."""
_WAYS_BACK: Final = {
    "lease_lost": "lost",
    "released": "released",
    "postponed": "released",
    "tried_again": "retried",
}


@dataclass(slots=True)
class Lease:
    """One claim, and how it ended."""

    epoch: int
    token: str
    pid: int
    round: int
    claimed: float = 0.0
    """Seconds since the epoch by the server's clock."""
    end: str = ""
    """sealed, lost, released; empty while it is held."""
    ended: float = 0.0
    charged: bool = False
    """Whether its end counted against the task's attempts."""


@dataclass(slots=True)
class Seal:
    round: int
    outcome: str
    token: str
    """Empty where the store sealed on its own account."""
    time: float


@dataclass(slots=True)
class History:
    """One task's life."""

    task_id: str
    state: str = ""
    round: int = 1
    leases: list[Lease] = field(default_factory=list)
    seals: list[Seal] = field(default_factory=list)
    overlapping: int = 0
    """Claims while a lease was held."""
    stale: list[str] = field(default_factory=list)
    """Guarded writes that came from an attempt without the lease."""
    calls: dict[str, int] = field(default_factory=dict)
    """Call id to micro-USD charged for it; -1 while it is open."""
    spend: int = 0
    """Micro-USD on the record."""
    _sealed_by: str = ""
    _way_back: str = ""
    _time: float = 0.0

    @property
    def lease(self) -> Lease | None:
        """The one that is held."""
        return self.leases[-1] if self.leases and not self.leases[-1].end else None

    @property
    def sealed(self) -> bool:
        return self.state == "sealed"

    # -- what the scripts do, command by command ---------------------------------------------------------

    def record(self, fields: dict[str, str]) -> None:
        """HSET of the task's own hash."""
        self.round = int(fields.get("round", self.round))
        if "token" in fields:
            self._claim(fields)
        if "mark" in fields and self.lease is not None and not self.lease.claimed:
            self.lease.claimed = int(fields["mark"]) / _MICRO
        if "sealed_by" in fields:
            self._sealed_by = fields["sealed_by"]
            self._guard(self._sealed_by.split(":")[0], "seal")
        if "checkpoint" in fields and self.lease is None:
            self.stale.append("checkpoint without a lease")
        if "outcome" in fields:
            self._time = int(fields["sealed"]) / _MICRO
            self.seals.append(Seal(self.round, fields["outcome"], self._sealed_by, self._time))
            self._sealed_by = ""
        if "state" in fields:
            self._move(fields["state"])

    def event(self, event: dict[str, Any]) -> None:
        """RPUSH to its events."""
        kind, attempt = event["type"], str(event["attempt"])
        if kind not in _OF_THE_STORE:
            self._guard(attempt, f"event {kind}")
        elif kind in _WAYS_BACK:
            self._way_back, self._time = _WAYS_BACK[kind], event["time"]
            self.leases[-1].charged = kind == "lease_lost"

    def call(self, call_id: str, value: str) -> None:
        """HSET of its calls."""
        status, _, micro_usd = value.split(":")
        self._guard(call_id.partition(".")[0], f"call {status}")
        self.calls[call_id] = int(micro_usd) if status == "settled" else -1

    def journal(self) -> None:
        if self.lease is None:
            self.stale.append("journal entry without a lease")

    def _claim(self, fields: dict[str, str]) -> None:
        self.overlapping += self.lease is not None
        self.leases.append(
            Lease(
                epoch=int(fields["epoch"]),
                token=fields["token"],
                pid=int(fields["worker"].rsplit("-", 2)[1]),
                round=self.round,
            )
        )

    def _move(self, state: str) -> None:
        if state != "running" and (lease := self.lease) is not None:
            lease.end = self._way_back if state == "queued" else state
            lease.ended = self._time
        self.state = state

    def _guard(self, epoch: str, what: str) -> None:
        if self.lease is None:
            self.stale.append(f"{what} of attempt {epoch} without a lease")
        elif int(epoch) != self.lease.epoch:
            self.stale.append(f"{what} of attempt {epoch} during attempt {self.lease.epoch}")


def histories(commands: Iterable[list[bytes]], keys: Keys) -> dict[str, History]:
    """Every task the commands speak of, by its id."""
    prefix = keys.task("").encode()
    found: dict[str, History] = {}
    for command in commands:
        if len(command) > 2 and command[1].startswith(prefix):
            task_id, _, part = command[1][len(prefix) :].decode().partition(":")
            _apply(found.setdefault(task_id, History(task_id)), part, command)
    return found


def _apply(history: History, part: str, command: list[bytes]) -> None:
    name, values = command[0].upper(), [value.decode("utf-8", "replace") for value in command[2:]]
    match name, part:
        case b"HSET", "":
            history.record(dict(zip(values[::2], values[1::2], strict=True)))
        case b"HINCRBY", "" if values[0] == "usage:spend_micro_usd":
            history.spend += int(values[1])
        case b"HSET", "calls":
            for call_id, value in zip(values[::2], values[1::2], strict=True):
                history.call(call_id, value)
        case b"RPUSH", "events":
            for event in values:
                history.event(json.loads(event))
        case b"RPUSH", "journal":
            history.journal()
