from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.contracts.envelope import Level
from zubble_queue.contracts.model import MAX_TOKENS_BY_LEVEL
from zubble_queue.errors import UnknownName
from zubble_worker.observers.ladder import GRADUATED, STRICT, Ladder, Rung, ladder_for


def thresholds(ladder: Ladder) -> list[int]:
    return [rung.threshold for rung in ladder.rungs]


def ladder(*thresholds: int) -> Ladder:
    return Ladder(tuple(Rung(threshold, "observe") for threshold in thresholds))


def test_the_graduated_ladder_has_the_five_thresholds_and_acts_at_the_ends() -> None:
    assert thresholds(GRADUATED) == [50, 500, 1_000, 1_500, 3_000]
    assert GRADUATED.rungs[0].action == "nudge"
    assert GRADUATED.rungs[-1].action == "kill"


def test_the_strict_profile_is_the_graduated_one_with_a_burst() -> None:
    assert STRICT.rungs == GRADUATED.rungs
    assert STRICT.burst == Rung(5, "restart")
    assert GRADUATED.burst is None


@pytest.mark.parametrize("wrong", [(), (0,), (-1, 5), (50, 50), (50, 40)])
def test_thresholds_must_be_positive_and_strictly_ascending(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="strictly ascending"):
        ladder(*wrong)


def test_only_the_last_rung_may_cut() -> None:
    with pytest.raises(ValueError, match="only the last"):
        Ladder((Rung(50, "kill"), Rung(500, "observe")))


def test_a_burst_needs_a_repeat() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Ladder(GRADUATED.rungs, burst=Rung(0, "restart"))


@pytest.mark.parametrize("level", MAX_TOKENS_BY_LEVEL)
def test_every_level_can_reach_the_whole_ladder(level: Level) -> None:
    assert GRADUATED.validate_reachable(MAX_TOKENS_BY_LEVEL[level]) is GRADUATED


@pytest.mark.parametrize(
    ("max_tokens", "top"), [(3_201, 3_000), (3_200, 2_999), (3_199, 2_998), (1_701, 1_500)]
)
def test_a_ladder_that_cannot_be_reached_is_scaled(max_tokens: int, top: int) -> None:
    assert GRADUATED.validate_reachable(max_tokens).top == top


def test_scaling_keeps_proportions_actions_and_burst() -> None:
    scaled = STRICT.validate_reachable(1_701)
    assert thresholds(scaled) == [25, 250, 500, 750, 1_500]
    assert [rung.action for rung in scaled.rungs] == [rung.action for rung in STRICT.rungs]
    assert scaled.burst == STRICT.burst


@given(st.sets(st.integers(1, 5_000), min_size=1, max_size=8), st.integers(1, 6_000))
def test_a_scaled_ladder_is_a_ladder_within_reach(wanted: set[int], max_tokens: int) -> None:
    original = ladder(*sorted(wanted))
    if max_tokens - 201 < len(wanted):
        with pytest.raises(ValueError, match="no room"):
            original.validate_reachable(max_tokens)
        return
    scaled = original.validate_reachable(max_tokens)
    assert len(scaled.rungs) == len(wanted)
    assert scaled.top + 200 < max_tokens


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="graduated, strict"):
        ladder_for("gentle")
