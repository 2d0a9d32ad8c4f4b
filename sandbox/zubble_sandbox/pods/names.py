"""Labels and names of what we make in a cluster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "zubble-queue"
PART: Final = "zubble-queue/part"
"""sandbox, canary or worker."""
NETWORK: Final = "zubble-queue/network"
"""none or open; the deny-all policy selects every pod of ours that is not open."""
TASK: Final = "zubble-queue/task"
ATTEMPT: Final = "zubble-queue/attempt"
WORKER: Final = "zubble-queue/worker"
TOKEN: Final = "zubble-queue/token"  # noqa: S105 - a label's name
LEASE: Final = "zubble-queue/lease"
"""The Lease of the process that made the pod."""
EXPIRES: Final = "zubble-queue/expires"
"""Seconds since 1970 after which anybody may delete it."""
NAME_NOTE: Final = "zubble-queue/name"
OWNER_NOTE: Final = "zubble-queue/owner"
SPEC_NOTE: Final = "zubble-queue/spec"
ENVIRONMENT_NOTE: Final = "zubble-queue/environment"
LINGER_NOTE: Final = "zubble-queue/linger-seconds"
SECRET_NOTE: Final = "zubble-queue/secret"  # noqa: S105 - an annotation's name
"""What opens the supervisor's socket to whoever adopts the pod. Commands in the pod cannot read it, and who
may read pods still needs the right to exec into them."""

_LABEL_LENGTH: Final = 63
_HASH_LENGTH: Final = 8


def label_value(text: str) -> str:
    """The text as a label may hold it; a text that had to be changed ends with a hash of it."""
    if re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", text):
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]
    kept = re.sub(r"[^-A-Za-z0-9_.]", "-", text).strip("-_.")[: _LABEL_LENGTH - _HASH_LENGTH - 1]
    return f"{kept}-{digest}" if kept else digest


def task_and_attempt(name: str) -> tuple[str, str]:
    """Of a sandbox's name, `<task_id>.<epoch>` and perhaps a purpose."""
    task, _, rest = name.partition(".")
    return task, rest.partition(".")[0] or "0"


def label(thing: Mapping[str, Any], name: str) -> str:
    """Of an object; empty when it has none of that name."""
    return str((thing["metadata"].get("labels") or {}).get(name, ""))


def note(thing: Mapping[str, Any], name: str) -> str:
    """An annotation; empty when it has none of that name."""
    return str((thing["metadata"].get("annotations") or {}).get(name, ""))
