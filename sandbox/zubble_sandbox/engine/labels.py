"""What is written on a container: whose it is, and all that is needed to adopt it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.records import new_token, started_at
from zubble_sandbox.secret import new_secret

LABEL: Final = "zubble.sandbox"
"""On every container of ours; its value is the sandbox's token."""
START_SECONDS: Final = 600.0
"""Added to the life of a container, for the time before its supervisor runs."""
_RECORD: Final = "zubble.record"
_SPEC: Final = "zubble.spec"


@dataclass(frozen=True, slots=True)
class Record:
    """Whose a container is; kept in its labels, where only those see it who may use the engine."""

    token: str
    """Name of the container, and mark of its processes."""
    secret: str
    """Opens the supervisor's socket."""
    place: str
    """Of the worker: the machine and the pid namespace in which its pid means something."""
    pid: int
    started: str
    """With it a pid that was used again is not mistaken for the worker."""
    expires: float
    """Seconds since 1970 by which the sandbox has ended itself."""

    @classmethod
    def new(cls, spec: SandboxSpec) -> Self:
        pid = os.getpid()
        return cls(
            token=new_token(),
            secret=new_secret(),
            place=this_place(),
            pid=pid,
            started=started_at(pid) or "",
            expires=time.time() + spec.max_life_seconds + START_SECONDS,
        )

    def orphaned(self, spec: SandboxSpec, *, running: bool) -> bool:
        """Whether nobody will miss its container: its worker is gone, or its time is over.

        One that lingers for another worker ends by itself when none comes.
        """
        if time.time() > self.expires:
            return True
        gone = self.place == this_place() and started_at(self.pid) != self.started
        return gone and not (running and spec.linger_seconds)


def this_place() -> str:
    """The same for processes that see each other's pids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def labels_of(record: Record, spec: SandboxSpec) -> dict[str, str]:
    """The content of read-only files is left out."""
    return {
        LABEL: record.token,
        "zubble.name": spec.name,
        "zubble.owner": spec.owner,
        _RECORD: json.dumps(asdict(record)),
        _SPEC: json.dumps(asdict(replace(spec, readonly_files={}))),
    }


def read_labels(labels: Mapping[str, str]) -> tuple[Record, SandboxSpec] | None:
    """What they were made from; None for labels that are not of this version."""
    try:
        told = json.loads(labels[_SPEC])
        lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
        return Record(**json.loads(labels[_RECORD])), SandboxSpec(**{**told, **lists})
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
