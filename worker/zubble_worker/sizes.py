"""How much of a work tree is copied."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.sandbox import MIB, SandboxSpec

SNAPSHOT_BYTES: Final = 512 * MIB
"""The most of any work tree that is copied, however large it may grow: a worker holds copies in memory."""


def snapshot_bytes(spec: SandboxSpec) -> int:
    """The most a snapshot may take: a full work tree and a quarter more for the headers of its entries."""
    return min(spec.work_bytes + spec.work_bytes // 4, SNAPSHOT_BYTES)
