"""The server name in a TLS ClientHello (RFC 8446, 4.1.2 and RFC 6066, 3), without any TLS library."""

from __future__ import annotations

from typing import Final

RECORD_HEADER_BYTES: Final = 5
HANDSHAKE_HEADER_BYTES: Final = 4
HELLO_BYTES: Final = 16_384
"""A longer one is refused; with post-quantum key shares they have about 2,000."""
_HANDSHAKE_RECORD: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME, _HOST_NAME = 0, 0
_VERSION_AND_RANDOM_BYTES: Final = 34


def record_bytes(header: bytes) -> int:
    """How long the body of a record is. Raises ValueError when it is no handshake record."""
    kind, major, _, *size = header
    length = int.from_bytes(bytes(size), "big")
    if kind != _HANDSHAKE_RECORD or major != 3 or not 0 < length <= HELLO_BYTES:
        raise ValueError("what follows is not TLS")
    return length


def hello_bytes(handshake: bytes) -> int:
    """How long the whole message is. Raises ValueError when it is no ClientHello, or too long."""
    length = HANDSHAKE_HEADER_BYTES + int.from_bytes(handshake[1:HANDSHAKE_HEADER_BYTES], "big")
    if handshake[0] != _CLIENT_HELLO or length > HELLO_BYTES:
        raise ValueError("the TLS handshake does not begin with a hello")
    return length


def server_name(handshake: bytes) -> str:
    """The host name that a whole ClientHello asks for. Raises ValueError when there is not just one."""
    hello = _Bytes(handshake[HANDSHAKE_HEADER_BYTES:])
    hello.take(_VERSION_AND_RANDOM_BYTES)
    hello.field(1)  # session id
    hello.field(2)  # cipher suites
    hello.field(1)  # compression methods
    extensions = _Bytes(hello.field(2))
    hello.end()
    lists = []
    while extensions:
        kind, data = extensions.number(2), extensions.field(2)
        if kind == _SERVER_NAME:
            lists.append(data)
    if len(lists) != 1:
        raise ValueError("the TLS hello names no server")
    return _only_name(lists[0])


def _only_name(data: bytes) -> str:
    outer = _Bytes(data)
    names = _Bytes(outer.field(2))
    outer.end()
    kind, name = names.number(1), names.field(2)
    names.end()
    if kind != _HOST_NAME or not name.isascii():
        raise ValueError("the TLS hello names no host")
    return name.decode("ascii")


class _Bytes:
    """Takes what the length before it says, and nothing that is not there."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("the TLS hello is cut short")
        self._at += size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def field(self, size: int) -> bytes:
        """What follows a length of so many bytes."""
        return self.take(self.number(size))

    def end(self) -> None:
        if self:
            raise ValueError("the TLS hello holds more than it says")
