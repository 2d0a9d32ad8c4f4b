"""The last net under secrets: what this process has read as one never leaves it through a log."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

_SHORTEST: Final = 6
"""A shorter text is no secret worth the name, and would blacken innocent words."""
_secrets: set[str] = set()


def keep_out_of_logs(secret: str | None) -> None:
    """Remember a key or password of this process."""
    if secret and len(secret.strip()) >= _SHORTEST:
        _secrets.add(secret.strip())


def without_secrets(text: str) -> str:
    """The text with *** for each secret in it, the longest first."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor, for the place behind the one that writes tracebacks out."""
    return {name: _redacted(value) for name, value in event.items()}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, bool | int | float | None):
        return value
    text = str(value)
    scrubbed = without_secrets(text)
    return value if scrubbed == text else scrubbed
