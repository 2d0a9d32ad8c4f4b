"""How much the attacks use up: little in CI, all of it with script/test-all, or what a variable says."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("ZUBBLE_TEST_FULL"))


def _size(name: str, usual: int, full: int) -> int:
    return int(os.environ.get(f"ZUBBLE_ABUSE_{name}", full if FULL else usual))


FILL_MIB = _size("FILL_MIB", 100, 10_240)
"""Written to each place, eight times; attack 19."""
EMPTY_FILES = _size("EMPTY_FILES", 50_000, 5_000_000)
"""Attack 20."""
FLOOD_MIB = _size("FLOOD_MIB", 256, 10_240)
"""Printed; attack 24."""
RACE_ROUNDS = _size("RACE_ROUNDS", 400, 10_000)
"""Attack 45."""
SEQUENCE = _size("SEQUENCE", 100, 1_000)
AT_ONCE = _size("AT_ONCE", 20, 100)
"""Sandboxes; attack 70."""
