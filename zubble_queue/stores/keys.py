"""Every key there is: its name, what bounds it, and when it goes away.

All begin with `<namespace>:<version>:`. A change of a value's form that an older reader would misread is a
new version, and so another set of keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

KEY_VERSION: Final = 1


class Lifetime(Enum):
    """When a key gets its time to live."""

    ALWAYS = "from its first write"
    SEALED = "at most record_ttl from the seal of its task; none while the task waits or runs"
    DONE = "record_ttl and a day from the seal of its batch's last task; none while one waits or runs"
    ACCOUNT = "none: it outlives what was charged to it, as a ceiling must"
    NEVER = "none: an index that its bound and the census keep small"


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One row of the table."""

    pattern: str
    """The key behind the prefix; `*` stands for a task id, batch, worker, role or hash."""
    redis_type: str
    lifetime: Lifetime
    bound: str

    def matches(self, name: str) -> bool:
        parts = (re.escape(part) for part in self.pattern.split("*"))
        return re.fullmatch("[^:]+".join(parts), name) is not None


KEY_KINDS: Final = (
    KeyKind("batches", "zset", Lifetime.NEVER, "one entry per batch that has a key"),
    KeyKind("feeding", "zset", Lifetime.NEVER, "one entry per batch with waiting tasks"),
    KeyKind("levels", "hash", Lifetime.ALWAYS, "record_ttl from the last feeding; one entry per priority"),
    KeyKind("batch:*", "hash", Lifetime.DONE, "counters: states, outcomes, usage, phases"),
    KeyKind("batch:*:tasks", "zset", Lifetime.DONE, "one entry per task"),
    KeyKind("batch:*:waiting", "zset", Lifetime.DONE, "one entry per waiting task; gone when empty"),
    KeyKind("task:*", "hash", Lifetime.SEALED, "envelope 64 KiB, ending 64 KiB, checkpoint 64 KiB, counters"),
    KeyKind("task:*:events", "list", Lifetime.SEALED, "8 MiB not yet in a segment, 64 KiB an event"),
    KeyKind("task:*:calls", "hash", Lifetime.SEALED, "one entry per model call of the task"),
    KeyKind("task:*:journal", "list", Lifetime.SEALED, "the newest 500 trials"),
    KeyKind("task:*:rounds", "list", Lifetime.SEALED, "earlier rounds, at most 19, 64 KiB each"),
    KeyKind("tenant:*", "hash", Lifetime.ACCOUNT, "one per tenant: its ceiling, and what it ever spent"),
    KeyKind("announced", "zset", Lifetime.NEVER, "free slots and a quarter"),
    KeyKind(
        "delayed", "zset", Lifetime.NEVER, "one entry per task that waits after a failure of the machinery"
    ),
    KeyKind("questions", "zset", Lifetime.NEVER, "one entry per task that waits for a person"),
    KeyKind("model:*", "hash", Lifetime.ALWAYS, "one per model; what of its provider's limits is used"),
    KeyKind("model:*:slots", "zset", Lifetime.ALWAYS, "the model's `concurrency`"),
    KeyKind("breakers", "zset", Lifetime.ALWAYS, "one entry per model that fails"),
    KeyKind("leases", "zset", Lifetime.NEVER, "one entry per running task"),
    KeyKind("busy", "hash", Lifetime.NEVER, "one entry per worker that holds a lease"),
    KeyKind("workers", "zset", Lifetime.NEVER, "one entry per living worker"),
    KeyKind("worker:*", "string", Lifetime.ALWAYS, "what a worker registered"),
    KeyKind("leader:*", "string", Lifetime.ALWAYS, "the holder of a role"),
    KeyKind("contact", "hash", Lifetime.ALWAYS, "two times: since when feeders have come, and the last"),
    KeyKind("vacant:*", "list", Lifetime.ALWAYS, "one entry, for whoever waits to lead"),
    KeyKind(
        "preflight:*", "string", Lifetime.ALWAYS, "record_ttl; one per content that passed its preflight"
    ),
    KeyKind("memory:*", "list", Lifetime.ALWAYS, "record_ttl from the last run; the newest 50, 8 KiB each"),
    KeyKind("memories", "zset", Lifetime.ALWAYS, "one entry per task type that is remembered"),
    KeyKind("wake", "list", Lifetime.ALWAYS, "one entry"),
)


class Keys:
    """Names keys below one namespace."""

    def __init__(self, namespace: str) -> None:
        self.prefix = f"{namespace}:{KEY_VERSION}:"
        self.batches = self.prefix + "batches"
        self.announced = self.prefix + "announced"
        self.delayed = self.prefix + "delayed"
        self.questions = self.prefix + "questions"
        self.leases = self.prefix + "leases"
        self.busy = self.prefix + "busy"
        self.workers = self.prefix + "workers"
        self.memories = self.prefix + "memories"
        self.wake = self.prefix + "wake"

    def task(self, task_id: str, part: str = "") -> str:
        return self.prefix + "task:" + task_id + (f":{part}" if part else "")

    def batch(self, name: str, part: str = "") -> str:
        return self.prefix + "batch:" + name + (f":{part}" if part else "")

    def tenant(self, name: str) -> str:
        return self.prefix + "tenant:" + name

    def model(self, name: str, part: str = "") -> str:
        """As in the scripts: a model's name may hold a colon."""
        written = name.replace("%", "%25").replace(":", "%3A")
        return self.prefix + "model:" + written + (f":{part}" if part else "")

    def worker(self, worker_id: str) -> str:
        return self.prefix + "worker:" + worker_id

    def leader(self, role: str) -> str:
        return self.prefix + "leader:" + role

    def vacant(self, role: str) -> str:
        return self.prefix + "vacant:" + role

    def preflight(self, content_hash: str) -> str:
        return self.prefix + "preflight:" + content_hash

    def facts(self, namespace: str) -> str:
        return self.prefix + namespace

    def changes(self, batch: str) -> str:
        """A channel, not a key."""
        return self.prefix + "changes:" + batch

    def kind(self, key: str) -> KeyKind | None:
        """The row of the table a key belongs to; None for a key that is not ours."""
        if not key.startswith(self.prefix):
            return None
        name = key[len(self.prefix) :]
        return next((kind for kind in KEY_KINDS if kind.matches(name)), None)
