"""A price is the operator's, or the snapshot's, or it is refused."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.model import Price
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import OperatorError
from zubble_worker.models.pricing import resolve


def price_of(model: str, url: str = "http://127.0.0.1:1/v1", **table) -> Price:
    return resolve(ModelConfig.model_validate({"base_url": url, "model": model} | table))


def test_the_operators_table_comes_first():
    assert price_of("gpt-4o", price={"input": 1, "output": 2, "cached": 0.5}) == Price(1, 2, 0.5)


def test_free_costs_nothing():
    assert price_of("anything", price="free").micro_usd(prompt_tokens=10**9, completion_tokens=10**9) == 0


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "http://127.0.0.1:4000/v1"])
def test_a_known_model_is_priced_from_the_snapshot_also_behind_a_proxy(url):
    assert price_of("gpt-4o", url) == Price(2.5, 10.0, 1.25)


def test_of_several_tiers_the_dearest_that_the_window_reaches_counts():
    small = price_of("gemini-2.5-pro", context=128_000)
    large = price_of("gemini-2.5-pro", context=1_000_000)
    assert (small.input, small.output) == (1.25, 10.0)
    assert (large.input, large.output) == (2.5, 15.0)


def test_an_unknown_price_is_refused_with_what_to_write():
    with pytest.raises(OperatorError, match=r"'my-own-model' is unknown: .*price = \{ input"):
        price_of("my-own-model")
