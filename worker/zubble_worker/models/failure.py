"""How one try fails, and whether another can help."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

_MESSAGE_CHARACTERS: Final = 300
_RETRIED_STATUS: Final = frozenset({408, 409, 425, 429})
_FINAL_STATUS: Final = frozenset({501, 505})
_SPENT_QUOTA: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


_TOO_MANY: Final = "http 429"
_REFUSES_EVERYBODY: Final = frozenset({"http 401", "http 402", "http 403", "http 404"})

TryKind = Literal["answered", "throttled", "failed", "cancelled"]


class TryFailed(Exception):
    """One try delivered less than an answer.

    Args:
        cause: As in `http 429`, `connect`, `idle`.
        message: One sentence, without a secret.
        permanent: Another try cannot help.
        retry_after_seconds: What the endpoint asks for.
        may_be_billed: The endpoint may have worked on the prompt.
    """

    def __init__(
        self,
        cause: str,
        message: str,
        *,
        permanent: bool = False,
        retry_after_seconds: float | None = None,
        may_be_billed: bool = False,
    ) -> None:
        self.cause, self.message = cause, message
        self.permanent, self.may_be_billed = permanent, may_be_billed
        self.retry_after_seconds = retry_after_seconds
        self.kind: TryKind = _kind(cause, permanent=permanent)
        super().__init__(f"{cause}: {message}")


def _kind(cause: str, *, permanent: bool) -> TryKind:
    """What a failure says about the provider. Most of 4xx are answers: the request is at fault."""
    if cause == _TOO_MANY:
        return "failed" if permanent else "throttled"
    if cause.startswith("http 4") and cause not in _REFUSES_EVERYBODY:
        return "answered"
    return "failed"


def http_failure(status: int, message: str, *, code: str = "", retry_after: str | None = None) -> TryFailed:
    """An HTTP status that is no answer; 408, 409, 425, 429 and most of 5xx are worth another try."""
    retried = status in _RETRIED_STATUS or (status >= 500 and status not in _FINAL_STATUS)
    return TryFailed(
        f"http {status}",
        message,
        permanent=not retried or code in _SPENT_QUOTA,
        retry_after_seconds=retry_after_seconds(retry_after),
    )


def html_failure() -> TryFailed:
    return TryFailed(
        "html", "the endpoint answered with a web page instead of JSON; base_url may be wrong", permanent=True
    )


def retry_after_seconds(value: str | None) -> float | None:
    """The Retry-After header, as seconds or as an HTTP date; None where it says nothing."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", value):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def presentable(message: str, key: str | None) -> str:
    """The endpoint's words in one line, without the key, at most 300 characters."""
    if key:
        message = message.replace(key, "[key]")
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", message).strip()[:_MESSAGE_CHARACTERS]
