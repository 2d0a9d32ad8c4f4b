"""Which faults a campaign injects, and in which order: drawn by seed from the whole matrix."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

SUBMITTING: Final = "submit_retried"
MATRIX: Final[dict[str, int]] = {
    "worker_killed": 4,
    "killed_in_claim": 2,
    "killed_in_seal": 2,
    "worker_stopped": 2,
    "worker_dozed": 1,
    "stopped_before_call": 1,
    "short_grace": 1,
    "clocks_apart": 1,
    "connections_cut": 2,
    "server_restarted": 1,
    "server_killed": 1,
    "server_stopped": 1,
    "server_mute": 1,
    "message_doubled": 2,
    "message_deleted": 2,
    SUBMITTING: 1,
}
"""Each kind with its weight; where there are enough faults, each happens at least once."""


def draw(count: int, seed: int, only: Sequence[str] = tuple(MATRIX)) -> list[str]:
    """So many faults of these kinds; the same for the same seed."""
    chance = random.Random(seed)
    if count < len(only):
        drawn = chance.sample(only, count)
    else:
        weights = [MATRIX[kind] for kind in only]
        drawn = [*only, *chance.choices(only, weights=weights, k=count - len(only))]
        chance.shuffle(drawn)
    _bring_forward(drawn, SUBMITTING, chance)
    return drawn


def _bring_forward(drawn: list[str], kind: str, chance: random.Random) -> None:
    """Into the first half: what it submits is work that the faults after it need."""
    half = len(drawn) // 2
    for late in range(half, len(drawn)):
        places = [place for place in range(half) if drawn[place] != kind]
        if drawn[late] == kind and places:
            place = chance.choice(places)
            drawn[place], drawn[late] = drawn[late], drawn[place]
