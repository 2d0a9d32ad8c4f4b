"""Why a request does not leave the sandbox: for its client, for the log, for the record."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

Reason = Literal[
    "malformed",  # not the HTTP that this proxy reads
    "too_large",  # a head over its limits
    "slow",  # a head or a hello that did not come in time
    "host",  # not on the allow-list, or no name at all
    "port",
    "host_header",  # another host inside the request than the one that was asked for
    "sni",  # the same for TLS
    "unresolved",
    "address",  # the name leads to an address that no sandbox may reach
    "unreachable",
]
_STATUS: Final = {
    "malformed": HTTPStatus.BAD_REQUEST,
    "host_header": HTTPStatus.BAD_REQUEST,
    "too_large": HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "slow": HTTPStatus.REQUEST_TIMEOUT,
    "unresolved": HTTPStatus.BAD_GATEWAY,
    "unreachable": HTTPStatus.BAD_GATEWAY,
}
_SHOWN_CHARS: Final = 100
NO_HOST: Final = "-"
"""Stands for the host where a request names none that could be read."""
TLS_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x31"
"""A fatal `access_denied`, for a tunnel that is open already."""


class Refused(Exception):
    """A request that is not passed on.

    Args:
        reason: The word for it.
        sentence: For whoever made the request; without anything it has not said itself.
        host: As it was asked for; `shown` makes it fit for a log.
    """

    def __init__(self, reason: Reason, sentence: str, host: str = NO_HOST) -> None:
        self.reason, self.sentence, self.host = reason, sentence, host
        super().__init__(sentence)

    @property
    def answer(self) -> bytes:
        """As HTTP."""
        status = _STATUS.get(self.reason, HTTPStatus.FORBIDDEN)
        body = f"zubble: {self.sentence}\n".encode("ascii", "backslashreplace")
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


def shown(text: bytes) -> str:
    """What a sandbox sent, short and printable."""
    cut = text[:_SHOWN_CHARS].decode("ascii", "backslashreplace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut) or NO_HOST
