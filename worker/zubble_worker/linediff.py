"""Which lines of two texts differ, within a bounded number of steps.

The shortest edit script of Myers (An O(ND) Difference Algorithm, 1986), on what is left between the common
beginning and the common end. Texts come from an agent, so the time it takes is bounded by the budget and not
by them: where the budget does not suffice, all that is left counts as replaced.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

STEPS: Final = 500_000
"""Less than a second of one core in CPython 3.11, over all files of one comparison."""


@dataclass(slots=True)
class Budget:
    """How many steps may still be taken."""

    steps: int = STEPS


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `old` of the one text became lines `new` of the other; both are half-open ranges."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def regions(old: Sequence[bytes], new: Sequence[bytes], budget: Budget) -> list[Region]:
    """What differs, in order; applying all regions to `old` makes `new`."""
    begin, end = 0, 0
    shorter = min(len(old), len(new))
    while begin < shorter and old[begin] == new[begin]:
        begin += 1
    while end < shorter - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = old[begin : len(old) - end], new[begin : len(new) - end]
    if not left and not right:
        return []
    inner = _shortest(left, right, budget) if left and right else None
    found = [Region(0, len(left), 0, len(right))] if inner is None else list(_joined(inner))
    return [
        Region(one.old_from + begin, one.old_to + begin, one.new_from + begin, one.new_to + begin)
        for one in found
    ]


def _shortest(old: Sequence[bytes], new: Sequence[bytes], budget: Budget) -> list[Region] | None:
    """Single lines taken away or put in, last first; None when the budget does not suffice."""
    n, m = len(old), len(new)
    reached = array("q", bytes(8 * (2 * (n + m) + 3)))
    trace: list[array[int]] = []
    for d in range(n + m + 1):
        trace.append(reached[n + m - d : n + m + d + 3])
        for k in range(-d, d + 1, 2):
            at = n + m + 1 + k
            down = k == -d or (k != d and reached[at - 1] < reached[at + 1])
            x = reached[at + 1] if down else reached[at - 1] + 1
            first, y = x, x - k
            while x < n and y < m and old[x] == new[y]:
                x, y = x + 1, y + 1
            reached[at] = x
            budget.steps -= 1 + x - first
            if budget.steps <= 0:
                return None
            if x >= n and y >= m:
                return _traced_back(trace, n, m)
    raise AssertionError("an edit script of n + m lines always exists")


def _traced_back(trace: Sequence[array[int]], x: int, y: int) -> list[Region]:
    found: list[Region] = []
    for d in range(len(trace) - 1, 0, -1):
        before, k = trace[d], x - y
        at = k + d + 1
        down = k == -d or (k != d and before[at - 1] < before[at + 1])
        previous = k + 1 if down else k - 1
        x = before[previous + d + 1]
        y = x - previous
        found.append(Region(x, x, y, y + 1) if down else Region(x, x + 1, y, y))
    return found


def _joined(single: Sequence[Region]) -> Iterator[Region]:
    """Regions that touch become one; `single` is last first."""
    current: Region | None = None
    for one in reversed(single):
        if current and current.old_to == one.old_from and current.new_to == one.new_from:
            current = Region(current.old_from, one.old_to, current.new_from, one.new_to)
            continue
        if current:
            yield current
        current = one
    if current:
        yield current
