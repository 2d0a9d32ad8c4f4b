"""What every back-end has from its table, and how each answers one call: by tries, until one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zubble_queue.errors import ModelUnavailable
from zubble_worker.models import pricing
from zubble_worker.models.query import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.envelope import Level
    from zubble_queue.contracts.model import CallOptions, Message, Price, Reply, StreamWatcher
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_worker.models.query import Try

_SLACK_SHARE, _SLACK_PIECES = 1.25, 64
UNSUPPORTED: Final = "UNSUPPORTED_REASONING_EFFORT"


class ConfiguredModel:
    """The part of contracts.model.Model that is alike everywhere.

    Args:
        config: Its table.
        name: What it is called here.

    Raises:
        OperatorError: The price is unknown.
    """

    def __init__(self, config: ModelConfig, name: str) -> None:
        self._config, self._name = config, name
        self._price = pricing.resolve(config.named(name))

    @property
    def name(self) -> str:
        return self._name

    @property
    def price(self) -> Price:
        return self._price

    @property
    def context_tokens(self) -> int:
        return self._config.context

    def continues(self, level: Level) -> bool:
        """Whether a reply at that thinking level can go on from a prefix, and is to."""
        return self._config.continues(level)

    async def _answer(
        self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher, attempt: Try
    ) -> Reply:
        """One call, with its retries. Raises ModelUnavailable when nothing was delivered."""
        if not self._config.accepts(options.level):
            known = ", ".join(sorted(self._config.capabilities.reasoning_efforts))
            raise ModelUnavailable(
                f"{UNSUPPORTED}: {self._name!r} takes {known}, not {options.level}.", permanent=True
            )
        query = Query(messages, options, watch, name=self._name, config=self._config, price=self._price)
        return await query.run(attempt)


def most_pieces(options: CallOptions) -> int:
    """An endpoint that sends more pieces than this does not honour max_tokens."""
    return int(options.max_tokens * _SLACK_SHARE) + _SLACK_PIECES
