"""What is written on a container: what it is, what adopting it takes, and in its name who works with it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import notes
from zubble_sandbox.records import new_token, started_at
from zubble_sandbox.secret import new_secret

LABEL: Final = "zubble.sandbox"
"""On every container of ours; its value is the sandbox's token."""
START_SECONDS: Final = 600.0
"""Added to the life of a container, for the time before its supervisor runs."""
TOKEN: Final = re.compile(r"zubble-[0-9a-f]{32}")
_RECORD: Final = "zubble.record"
_SPEC: Final = "zubble.spec"
_ALIVE: Final = frozenset({"created", "running", "paused", "restarting"})


@dataclass(frozen=True, slots=True)
class Record:
    """What is told of a container only to those who may use the engine."""

    token: str
    """Its sandbox's handle, and the mark of its processes."""
    secret: str
    """Opens the supervisor's socket."""
    uid: int
    """What its commands run as."""
    expires: float
    """Seconds since 1970 by which the sandbox has ended itself."""

    @classmethod
    def new(cls, spec: SandboxSpec, uids: range) -> Self:
        """With one of these uids; seldom that of another sandbox."""
        expires = time.time() + spec.max_life_seconds + START_SECONDS
        return cls(new_token(), new_secret(), random.choice(uids), expires)  # noqa: S311 - no secret

    def labels(self, spec: SandboxSpec) -> dict[str, str]:
        return {
            LABEL: self.token,
            "zubble.name": spec.name,
            "zubble.owner": spec.owner,
            _RECORD: json.dumps(asdict(self)),
            _SPEC: notes.note(spec),
        }


@dataclass(frozen=True, slots=True)
class Worker:
    """The process that works with a container; in the container's name, which can be changed."""

    place: str
    """The machine and the pid namespace in which its pid means something."""
    pid: int
    started: str
    """With it a pid that was used again is not mistaken for the worker."""

    @classmethod
    def this(cls) -> Self:
        pid = os.getpid()
        return cls(_this_place(), pid, started_at(pid) or "")

    @property
    def may_live(self) -> bool:
        """False when it is known to be gone."""
        return self.place != _this_place() or started_at(self.pid) == self.started

    def name_of(self, token: str) -> str:
        """Of a container it works with."""
        return f"{token}.{self.place}.{self.pid}.{self.started}"


@dataclass(frozen=True, slots=True)
class Found:
    """A container of ours, as an engine lists it."""

    id: str
    alive: bool
    """Whether its first process runs, or may come to."""
    record: Record
    spec: SandboxSpec
    """Without the read-only files."""
    worker: Worker
    image: str

    @classmethod
    def read(cls, listed: Mapping[str, Any]) -> Self | None:
        """None for a container of another version."""
        try:
            _, place, pid, started = listed["Names"][0].removeprefix("/").split(".")
            return cls(
                id=listed["Id"],
                alive=listed["State"] in _ALIVE,
                record=Record(**json.loads(listed["Labels"][_RECORD])),
                spec=notes.recalled(listed["Labels"][_SPEC]),
                worker=Worker(place, int(pid), started),
                image=listed["ImageID"],
            )
        except (KeyError, IndexError, ValueError, TypeError, AttributeError, SandboxUnavailable):
            return None

    @property
    def orphaned(self) -> bool:
        """Whether nobody will miss it: its worker is gone, or its time is over.

        One that lingers for another worker ends by itself when none comes.
        """
        if time.time() > self.record.expires:
            return True
        return not self.worker.may_live and not (self.alive and self.spec.linger_seconds)


def _this_place() -> str:
    """The same for processes that see each other's pids, and for no others."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]
