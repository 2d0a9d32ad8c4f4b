"""What one try has delivered so far, piece by piece, with the watcher listening."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zubble_queue.contracts.model import Cut, StreamWatcher

if TYPE_CHECKING:
    from zubble_queue.contracts.model import Channel

MAX_TOOL_CALLS: Final = 128
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HIGH_SURROGATES: Final = ("\ud800", "\udbff")
_BYTES_PER_TOKEN: Final = 4
"""Of what was delivered, where nothing else is known; English has about four, so has code."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What the endpoint says it used, in tokens."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0


class Assembly:
    """Collects the pieces of one answer and shows each to the watcher."""

    def __init__(self, watch: StreamWatcher) -> None:
        self._watch = watch
        self._parts: dict[Channel, list[str]] = {"text": [], "reasoning": [], "tool": []}
        self._held: dict[Channel, str] = {}
        """The first half of a surrogate pair whose second half has not come."""
        self._tools: dict[int, tuple[list[str], list[str]]] = {}
        self.asked = False
        """The request has left; it may be billed."""
        self.accepted = False
        """The endpoint has begun an answer."""
        self.ended = False
        """The answer is whole."""
        self.pieces = 0
        self.dropped_bytes = 0
        """Delivered, and too much to be kept."""
        self.started = time.monotonic()
        self.first_at: float | None = None
        self.cut: Cut | None = None
        self.reported: Reported | None = None
        self.finish_reason: str | None = None
        self.served_model: str | None = None

    @property
    def delivered(self) -> bool:
        """Whether there is anything that must be paid for."""
        return self.pieces > 0 or self.dropped_bytes > 0

    @property
    def text(self) -> str:
        return "".join(self._parts["text"])

    @property
    def reasoning(self) -> str:
        return "".join(self._parts["reasoning"])

    @property
    def tool_calls(self) -> tuple[tuple[str, str], ...]:
        """(name, raw arguments) in the order of their index."""
        ordered = (self._tools[index] for index in sorted(self._tools))
        return tuple(("".join(names), "".join(arguments)) for names, arguments in ordered)

    @property
    def estimated_tokens(self) -> int:
        """Completion tokens as far as one can see: a piece is at least one."""
        size = sum(len(part.encode()) for parts in self._parts.values() for part in parts)
        return max(self.pieces, -(-(size + self.dropped_bytes) // _BYTES_PER_TOKEN))

    @property
    def first_token_seconds(self) -> float | None:
        return None if self.first_at is None else self.first_at - self.started

    def feed(self, channel: Channel, text: str) -> None:
        """Take a piece. After a cut nothing more is shown to the watcher."""
        if not text.isascii() or self._held:
            text = self._paired(channel, text)
        if not text:
            return
        self._counted()
        self._parts[channel].append(text)
        if self.cut is None:
            self.cut = self._watch.feed(channel, text)

    def tool(self, index: int, name: str, arguments: str) -> None:
        """Take a piece of a tool call; names and arguments may come in pieces of their own."""
        if index not in self._tools and len(self._tools) >= MAX_TOOL_CALLS:
            return
        names, pieces = self._tools.setdefault(index, ([], []))
        if name:
            names.append(name)
            self._counted()
        if arguments:
            before = len(self._parts["tool"])
            self.feed("tool", arguments)
            pieces.extend(self._parts["tool"][before:])

    @property
    def last_tool(self) -> int:
        """Index of the call that was opened last; 0 where there is none."""
        return max(self._tools, default=0)

    def _counted(self) -> None:
        self.pieces += 1
        if self.first_at is None:
            self.first_at = time.monotonic()

    def _paired(self, channel: Channel, text: str) -> str:
        """Join surrogate halves that came in two pieces; a half without its partner becomes U+FFFD."""
        text = self._held.pop(channel, "") + text
        if not _SURROGATE.search(text):
            return text
        if _HIGH_SURROGATES[0] <= text[-1] <= _HIGH_SURROGATES[1]:
            self._held[channel], text = text[-1], text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
