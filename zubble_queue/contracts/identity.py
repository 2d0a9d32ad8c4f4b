"""Who a task is: names and ids derived from (batch, source_id, repeat), and hashes of content (C40)."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import Any, Final

_SLUG_LENGTH: Final = 40
_NUMBER_RANGE: Final = 1_000_000
BATCH_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces, the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def sha256(data: bytes) -> str:
    """Lower-case hex digest."""
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=1)
def task_id(batch: str, source_id: str, repeat: int) -> str:
    """`<n>-<slug>-<8 hex>`: the same key gives the same id, wherever and in whatever order it is read."""
    digest = sha256(canonical_json([batch, source_id, repeat]))
    number = int(digest[:8], 16) % _NUMBER_RANGE
    slug = re.sub(r"[^a-z0-9]+", "-", source_id.lower()).strip("-")[:_SLUG_LENGTH].strip("-") or "task"
    return f"{number}-{slug}-{digest[8:16]}"


def default_batch_name(stem: str, *settings: str) -> str:
    """`<file stem>-<6 hex of model, agent, sandbox and budget>`: another model is another batch."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:60] or "batch"
    return f"{safe}-{sha256(canonical_json(list(settings)))[:6]}"
