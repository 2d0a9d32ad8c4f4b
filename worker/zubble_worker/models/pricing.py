"""What a model costs: the operator's own table first, then the genai-prices snapshot; unknown is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zubble_queue.contracts.model import Price
from zubble_queue.contracts.model_config import PriceTable
from zubble_queue.errors import MissingExtra, OperatorError

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig

FREE = Price(0.0, 0.0)


def resolve(config: ModelConfig) -> Price:
    """The price of a model in USD per million tokens.

    Raises:
        OperatorError: It is unknown; the sentence says what to write.
        MissingExtra: genai-prices is asked for and not installed.
    """
    if isinstance(config.price, PriceTable):
        return config.price.price()
    if config.price == "free":
        return FREE
    found = _looked_up(config)
    if found is None:
        raise OperatorError(
            f"The price of model {config.model!r} is unknown: give it a price = {{ input = …, output = … }} "
            "in USD per million tokens, or price = 'free'."
        )
    return found


def _looked_up(config: ModelConfig) -> Price | None:
    """From the snapshot that genai-prices carries; nothing is fetched."""
    try:
        import genai_prices  # noqa: PLC0415 -- half a second, needed only where the operator gives no price
    except ModuleNotFoundError as missing:
        raise MissingExtra("genai-prices", "worker") from missing
    nothing = genai_prices.Usage(input_tokens=0, output_tokens=0)
    for url in (config.base_url, None):
        try:
            found = genai_prices.calc_price(nothing, config.model or "", provider_api_url=url)
        except LookupError:
            continue
        return _flat(found.model_price, config.context)
    return None


def _flat(price: Any, context: int) -> Price | None:
    """One price per kind of token: of several tiers the dearest that the window can reach."""
    rates = {
        name: _dearest(getattr(price, f"{name}_mtok", None), context)
        for name in ("input", "output", "cache_read")
    }
    if rates["input"] is None or rates["output"] is None:
        return None
    return Price(rates["input"], rates["output"], rates["cache_read"])


def _dearest(rate: Any, context: int) -> float | None:
    if rate is None or isinstance(rate, Decimal):
        return None if rate is None else float(rate)
    reachable = [tier.price for tier in rate.tiers if tier.start < context]
    return float(max([rate.base, *reachable]))
