"""Money is rounded up, tokens are never under-estimated, and every interval fits into its lease."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from zubble_queue.contracts.model import (
    MAX_TOKENS_BY_LEVEL,
    Message,
    Price,
    estimate_prompt_tokens,
    estimate_tokens,
)
from zubble_queue.settings import LeaseSettings

cents = st.integers(min_value=0, max_value=10_000)
tokens = st.integers(min_value=0, max_value=2_000_000)


@given(cents, cents, tokens, tokens)
def test_a_cost_is_rounded_up_to_the_next_micro_usd(
    input_cents: int, output_cents: int, prompt: int, completion: int
):
    price = Price(input=input_cents / 100, output=output_cents / 100)
    exact = Fraction(input_cents, 100) * prompt + Fraction(output_cents, 100) * completion
    cost = price.micro_usd(prompt_tokens=prompt, completion_tokens=completion)
    assert exact <= cost < exact + 1


def test_a_single_cheap_token_costs_something():
    assert Price(input=0.01, output=0.01).micro_usd(prompt_tokens=1, completion_tokens=0) == 1


def test_a_whole_number_of_micro_usd_is_not_rounded_up():
    assert Price(input=0.1, output=0.2).micro_usd(prompt_tokens=30, completion_tokens=0) == 3
    assert (
        Price(input=3, output=15).micro_usd(prompt_tokens=1_000_000, completion_tokens=1_000_000)
        == 18_000_000
    )


def test_nothing_costs_nothing():
    assert Price(input=3, output=15).micro_usd(prompt_tokens=0, completion_tokens=0) == 0
    assert Price(input=0, output=0).micro_usd(prompt_tokens=10, completion_tokens=10) == 0


def test_the_cached_part_of_a_prompt_has_its_own_price():
    price = Price(input=3, output=15, cached=0.3)
    assert price.micro_usd(prompt_tokens=1_000, completion_tokens=0, cached_tokens=1_000) == 300
    assert price.micro_usd(prompt_tokens=1_000, completion_tokens=0, cached_tokens=400) == 600 * 3 + 120


def test_a_cached_prompt_without_a_price_of_its_own_costs_as_much_as_any():
    assert Price(input=3, output=15).micro_usd(prompt_tokens=10, completion_tokens=0, cached_tokens=10) == 30


@given(st.text(max_size=200))
def test_an_estimate_is_a_token_per_three_bytes_rounded_up(text: str):
    size = len(text.encode())
    assert 3 * estimate_tokens(text) >= size > 3 * (estimate_tokens(text) - 1)


def test_a_prompt_is_more_than_its_texts():
    messages = [Message("system", "abc"), Message("user", "abcd")]
    assert estimate_prompt_tokens(messages) > estimate_tokens("abc") + estimate_tokens("abcd")


def test_every_level_leaves_room_for_the_last_threshold_of_the_detector():
    assert min(MAX_TOKENS_BY_LEVEL.values()) > 3_000 + 200
    assert MAX_TOKENS_BY_LEVEL == {"off": 4_000, "low": 8_000, "medium": 16_000, "xhigh": 12_000}


def test_the_default_lease_is_renewed_every_quarter_and_given_up_before_it_ends():
    lease = LeaseSettings()
    assert (lease.lease_seconds, lease.renew_seconds, lease.self_stop_seconds) == (60, 15, 40)


@given(st.floats(min_value=2, max_value=3_600))
def test_every_interval_derived_from_a_lease_is_shorter_than_the_lease(lease_seconds: float):
    lease = LeaseSettings(lease_seconds=lease_seconds)
    assert 0 < lease.renew_seconds < lease.self_stop_seconds < lease.lease_seconds
    assert lease.renew_seconds * 2 < lease.self_stop_seconds, "one lost renewal must not stop an attempt"


@pytest.mark.parametrize("lease_seconds", [0, -1, 1.9, 3_601, float("nan"), float("inf")])
def test_a_lease_that_cannot_be_kept_is_refused(lease_seconds: float):
    with pytest.raises(ValidationError, match="lease_seconds"):
        LeaseSettings(lease_seconds=lease_seconds)
