"""One scripted answer: what is said, how fast, and how it goes wrong."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_FROZEN: Final = ConfigDict(frozen=True, extra="forbid")
_MAX_TEXT: Final = 64 * 1_048_576
"""Characters one reply may hold."""
INVALID_UTF8: Final = b"\xff\xfe\xc3("
"""What the `invalid_utf8` fault delivers; read with replacement characters it is three of them and a `(`."""


class Repeat(BaseModel):
    """A unit said again and again."""

    model_config = _FROZEN

    repeat: str = Field(min_length=1)
    times: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.repeat) * self.times > _MAX_TEXT:
            raise ValueError(f"a repeat must stay below {_MAX_TEXT} characters")
        return self


Words = str | tuple[str | Repeat, ...]
"""A text, or pieces of one."""


def spell(words: Words) -> str:
    """The text itself."""
    if isinstance(words, str):
        return words
    return "".join(part if isinstance(part, str) else part.repeat * part.times for part in words)


class ToolCall(BaseModel):
    """A call in the provider's own format."""

    model_config = _FROZEN

    name: str
    arguments: str | None = None
    """Raw JSON text; the field is missing from the stream where it is None."""


class Fault(BaseModel):
    """How a call goes wrong."""

    model_config = _FROZEN

    kind: Literal[
        "status",  # an HTTP error instead of an answer
        "html",  # a web page with status 200
        "stall",  # silence until the client gives up
        "reset",  # the connection is reset
        "eof",  # the connection closes without an end of the stream
        "malformed",  # an event that is not JSON
        "invalid_utf8",  # bytes that are not UTF-8 inside a delta; the stream then goes on
        "big_chunk",  # one delta of `size` bytes; the stream then goes on
        "error_event",  # an error object inside the stream
    ]
    after_tokens: int = Field(default=0, ge=0)
    """Delivered before it happens; `status` and `html` deliver nothing."""
    first_tries: int | None = Field(default=None, ge=1)
    """Only the first tries of the same prompt fail; every try where it is None."""
    status: int = Field(default=500, ge=300, le=599)
    retry_after: str | None = None
    """The Retry-After header, as seconds or as an HTTP date."""
    message: str = "scripted fault"
    size: int = Field(default=10 * 1_048_576, ge=4, le=_MAX_TEXT)

    @property
    def big_text(self) -> str:
        return "big " * (self.size // 4)


class ScriptedReply(BaseModel):
    """One answer; a bare string is its text."""

    model_config = _FROZEN

    text: Words = ""
    reasoning: Words = ""
    """Said before the text, in the reasoning channel."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    """finish_reason; by default what fits: stop, length or tool_calls."""
    usage: bool = True
    """Whether the tokens are reported."""
    cached_tokens: int = Field(default=0, ge=0)
    delay_seconds: float = Field(default=0.0, ge=0)
    """Before the first token."""
    token_seconds: float = Field(default=0.0, ge=0)
    """Per token; 0 is as fast as may be, 20,000 a second for one stream of the mock endpoint."""
    tokens_per_event: int = Field(default=1, ge=1)
    fault: Fault | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"text": data} if isinstance(data, str) else data
