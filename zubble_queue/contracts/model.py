"""What the loop asks of a model, and what it hears back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import Level

Channel = Literal["text", "reasoning", "tool"]
Role = Literal["system", "user", "assistant"]

MAX_TOKENS_BY_LEVEL: Final[dict[Level, int]] = {"off": 4_000, "low": 8_000, "medium": 16_000, "xhigh": 12_000}
"""Completion tokens of one call by thinking level (Z23, C16)."""
SMALLEST_CALL_TOKENS: Final = 256
"""Below this a call is not worth making: the limit has been reached (C43)."""
_BYTES_PER_TOKEN: Final = 3
_TOKENS_PER_MESSAGE: Final = 20


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the prompt."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class TryEnd:
    """How one try at a provider ended, as its limits see it."""

    kind: Literal["answered", "throttled", "failed", "cancelled"]
    """`throttled`: refused for its rate (429); `failed`: the provider, not the request, is at fault."""
    tokens: int = 0
    retry_after_seconds: float | None = None


class Admission(Protocol):
    """Lets tries through, one at a time, as the limits that all workers share allow it."""

    @property
    def patience_seconds(self) -> float:
        """The most one try waits."""

    async def enter(self, tokens: int) -> None:
        """Before each try: wait for a place. The time is nobody's: no deadline runs meanwhile."""

    async def leave(self, end: TryEnd) -> None:
        """After each try that was let in."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How one call is to be made."""

    max_tokens: int
    deadline_seconds: float
    """Whole call, from connect to the last byte; then it ends with finish `deadline`."""
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    level: Level = "off"
    response_schema: dict[str, Any] | None = None
    """JSON schema of the reply, passed on where the endpoint can enforce it."""
    seed: int | None = None
    prefix: str = ""
    """The beginning of the reply, from which a model that `continues` is to go on; what comes back is the
    rest, and no schema is enforced on it."""
    admission: Admission | None = None
    """Asked before and told after every try; without one every try is made at once."""
    call_id: str = ""
    """`<task_id>.<epoch>.<step>.<call>`, ASCII: the record's name of the call, for the provider's own log."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A watcher's order to close the stream now."""

    reason: str
    """As in the stop: `loop:text`."""
    evidence: dict[str, Any]


class StreamWatcher(Protocol):
    """Sees every delta of a stream as it arrives; must return in microseconds and never raise."""

    def feed(self, channel: Channel, text: str) -> Cut | None:
        """Take the next piece, cut anywhere; a Cut closes the connection at once."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A call that failed before it delivered anything and was made again (C36)."""

    cause: str
    """As in `http 429`, `connect`, `idle`."""
    attempt: int
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, also when it was cut."""

    text: str
    usage: Usage
    """With `calls` 1 and the price already applied; estimated where the provider reported nothing."""
    finish: Literal["stop", "length", "cut", "deadline", "error"]
    """`error`: the stream broke after it had delivered something; it was paid for, its text is not whole."""
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """(name, arguments as raw JSON text) pairs, in order."""
    cut: Cut | None = None
    retries: tuple[Retry, ...] = ()
    detail: str = ""
    """One sentence where finish is `error`."""
    seconds: float = 0.0
    time_to_first_token_seconds: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """For the cached part of the prompt; the input price where it is None."""

    def micro_usd(self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> int:
        """Cost in whole micro-USD, rounded up; USD per million tokens is micro-USD per token."""
        cached_price = self.input if self.cached is None else self.cached
        plain = max(prompt_tokens - cached_tokens, 0)
        exact = plain * self.input + cached_tokens * cached_price + completion_tokens * self.output
        return math.ceil(round(exact, 6))


class Model(Protocol):
    """An endpoint that continues a conversation.

    `query` raises ModelUnavailable when nothing was delivered after the retries; once anything has been
    delivered it returns a Reply, because that must be paid for. Cancelling it closes the connection.
    """

    @property
    def name(self) -> str: ...

    @property
    def price(self) -> Price: ...

    @property
    def context_tokens(self) -> int:
        """Window of prompt and completion together."""

    def continues(self, level: Level) -> bool:
        """Whether a reply at that thinking level can go on from a prefix, and is to."""

    async def query(self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher) -> Reply:
        """One streamed call."""

    async def aclose(self) -> None: ...


def estimate_tokens(text: str) -> int:
    """An upper estimate for reserving: one token per three UTF-8 bytes, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def estimate_prompt_tokens(messages: Sequence[Message]) -> int:
    """An upper estimate of a whole prompt, with a few tokens of framing per message."""
    return sum(estimate_tokens(message.content) + _TOKENS_PER_MESSAGE for message in messages)
