"""Which faults a campaign injects, and in which order: drawn by seed from the whole matrix."""

from __future__ import annotations

import random
from typing import Final

MATRIX: Final[dict[str, int]] = {
    "worker_killed": 4,
    "killed_in_claim": 2,
    "killed_in_seal": 2,
    "worker_stopped": 2,
    "short_grace": 1,
    "clocks_apart": 1,
    "connections_cut": 2,
    "server_restarted": 1,
    "server_killed": 1,
    "server_stopped": 1,
    "server_mute": 1,
    "message_doubled": 2,
    "message_deleted": 2,
    "submit_retried": 1,
}
"""Each kind with its weight; where there are enough faults, each happens at least once."""


def draw(count: int, seed: int, matrix: dict[str, int] = MATRIX) -> list[str]:
    """So many faults; the same for the same seed."""
    chance = random.Random(seed)
    kinds = list(matrix)
    if count < len(kinds):
        return chance.sample(kinds, count)
    drawn = kinds + chance.choices(kinds, weights=list(matrix.values()), k=count - len(kinds))
    chance.shuffle(drawn)
    return drawn
