"""The shortest edit script, as long as its budget suffices; a whole replacement where it does not."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from zubble_worker.linediff import Budget, Region, regions

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d"]), max_size=14)


def applied(old: list[bytes], new: list[bytes], found: list[Region]) -> list[bytes]:
    result, at = [], 0
    for region in found:
        result += old[at : region.old_from] + new[region.new_from : region.new_to]
        at = region.old_to
    return result + old[at:]


def in_common(old: list[bytes], new: list[bytes]) -> int:
    """Length of the longest common subsequence, by the table everybody knows."""
    row = [0] * (len(new) + 1)
    for line in old:
        corner = 0
        for at, other in enumerate(new, start=1):
            corner, row[at] = row[at], corner + 1 if line == other else max(row[at], row[at - 1])
    return row[-1]


@given(LINES, LINES)
def test_the_regions_make_the_new_text_with_the_fewest_lines(old, new):
    found = regions(old, new, Budget())

    lines = sum(one.old_to - one.old_from + one.new_to - one.new_from for one in found)
    assert applied(old, new, found) == new
    assert lines == len(old) + len(new) - 2 * in_common(old, new)


@given(LINES, LINES, st.integers(0, 40))
def test_with_any_budget_the_regions_make_the_new_text_in_order_and_apart(old, new, steps):
    found = regions(old, new, Budget(steps))

    assert applied(old, new, found) == new
    for one, other in itertools.pairwise(found):
        assert one.old_to <= other.old_from
        assert one.new_to <= other.new_from
        assert (one.old_to, one.new_to) != (other.old_from, other.new_from)


def test_what_has_nothing_in_common_costs_no_more_than_the_budget():
    old = [b"%d\n" % (number % 11) for number in range(30_000)]
    new = [b"%d\n" % (number * number % 13) for number in range(30_000)]
    budget = Budget(20_000)

    found = regions(old, new, budget)

    assert applied(old, new, found) == new
    assert len(found) == 1
    assert budget.steps > -30_000, "one run of equal lines is the most it goes beyond"
