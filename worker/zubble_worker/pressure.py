"""How full the model's window is while a reply comes, and what earlier calls tell about that (C13, C14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zubble_queue.contracts.ending import Stop, Usage
from zubble_queue.contracts.model import SMALLEST_CALL_TOKENS, Cut

FULL_SHARE: Final = 0.95
"""Of the window, in prompt and reply together: then the stream is closed (C14)."""
_CHARS_PER_TOKEN: Final = 4
"""Of a reply whose pieces hold several tokens; English has about four, so has code."""
_UNTOLD_RATIO: Final = 0.75
"""Four bytes a token, where the upper estimate takes three."""


@dataclass(slots=True)
class Window:
    """What a prompt comes to in the provider's own count, folded from the events of the calls so far."""

    ratio: float = _UNTOLD_RATIO
    """The provider's count of the last prompt over our estimate of it."""
    estimate: int = 0

    def started(self, data: dict[str, Any]) -> None:
        self.estimate = data.get("prompt_estimate", 0)

    def finished(self, data: dict[str, Any]) -> None:
        usage = Usage.model_validate(data["usage"])
        if self.estimate and not usage.estimated_calls:
            self.ratio = usage.prompt_tokens / self.estimate

    def expected(self, estimate: int) -> int:
        """Tokens of a prompt, in the provider's count."""
        return int(estimate * self.ratio)


class Pressure:
    """Counts one reply, and orders the cut when prompt and reply nearly fill the window.

    At least the smallest useful reply may come.

    Args:
        prompt_tokens: As the provider may be expected to count them.
        window: Tokens of prompt and reply together.
    """

    def __init__(self, prompt_tokens: int, window: int) -> None:
        self._prompt, self._window = prompt_tokens, window
        self._room = max(int(FULL_SHARE * window) - prompt_tokens, SMALLEST_CALL_TOKENS)
        self._pieces = self._chars = 0

    def feed(self, text: str) -> Cut | None:
        self._pieces += 1
        self._chars += len(text)
        if self._pieces <= self._room and self._chars <= _CHARS_PER_TOKEN * self._room:
            return None
        return Cut(
            Stop.LIMIT_CONTEXT.value,
            {
                "action": "compact",
                "prompt_tokens": self._prompt,
                "completion_tokens": max(self._pieces, self._chars // _CHARS_PER_TOKEN),
                "window": self._window,
            },
        )
