"""The head of a request, read once and strictly: one spelling is understood, everything else is refused.

What two parsers could read differently is no request here: bare line feeds, folded lines, spaces around a
header's name, two lengths, a chunked body. What is passed on is written anew from what was understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from zubble_queue.contracts.hosts import host_name
from zubble_sandbox.egress.refusal import Refused, shown

HEADERS: Final = 100
_HTTP_PORT: Final = 80
_PORTS: Final = range(1, 65_536)
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_ABSOLUTE: Final = re.compile(rb"http://([^/?]*)([/?][^#]*)?", re.IGNORECASE)
_AUTHORITY: Final = re.compile(rb"(.*?)(?::([0-9]{1,5}))?", re.DOTALL)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"upgrade"}
)

Fields = Sequence[tuple[bytes, bytes]]
"""Name in lower case, and value."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request wants to go; the host in its one spelling."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a sandbox."""

    target: Target
    tunnel: bool
    """CONNECT; else a request in plain HTTP."""
    head: bytes = b""
    """What is sent to the host of a plain one."""
    body_bytes: int = 0
    """How much of a body follows."""


def parse(head: bytes) -> Request:
    """Read a head, up to and with its empty line. Raises Refused."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise Refused("malformed", "This is not a request line of HTTP/1.1.")
    method, text, minor = found.groups()
    fields = _fields(lines)
    if method == b"CONNECT":
        return _tunnel(text, fields)
    return _plain(method, text, minor, fields)


def _tunnel(text: bytes, fields: Fields) -> Request:
    target = _target(text, default_port=None)
    _check_host(target, fields, default_port=None, needed=False)
    if _body_bytes(fields, target):
        _malformed("CONNECT has no body.", target)
    return Request(target, tunnel=True)


def _plain(method: bytes, text: bytes, minor: bytes, fields: Fields) -> Request:
    found = _ABSOLUTE.fullmatch(text)
    if found is None:
        raise Refused("malformed", "Ask for an absolute http:// URL, or use CONNECT for https://.")
    target = _target(found[1], default_port=_HTTP_PORT)
    _check_host(target, fields, default_port=_HTTP_PORT, needed=minor == b"1")
    body_bytes = _body_bytes(fields, target)
    path = found[2] or b"/"
    lines = [
        b"%s %s HTTP/1.%s" % (method, path if path.startswith(b"/") else b"/" + path, minor),
        b"host: %s" % _authority(target),
        *(b"%s: %s" % field for field in _passed_on(fields)),
        b"connection: close",
    ]
    return Request(target, tunnel=False, head=b"\r\n".join(lines) + b"\r\n\r\n", body_bytes=body_bytes)


def _fields(lines: Sequence[bytes]) -> Fields:
    if len(lines) > HEADERS:
        raise Refused("too_large", f"A request may have at most {HEADERS} headers.")
    fields = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise Refused("malformed", "A header is not written as HTTP/1.1 has it.")
        fields.append((found[1].lower(), found[2].strip(b" \t")))
    return fields


def _target(authority: bytes, *, default_port: int | None) -> Target:
    found = _AUTHORITY.fullmatch(authority)
    assert found is not None
    name, digits = found.groups()
    try:
        host = host_name(name.decode("ascii", "backslashreplace"))
    except ValueError as wrong:
        raise Refused("host", f"'{shown(authority)}' {wrong}.", shown(name)) from wrong
    port = int(digits) if digits else default_port
    if port is None or port not in _PORTS:
        raise Refused("malformed", f"{host} needs a port from 1 to 65535.", host)
    return Target(host, port)


def _check_host(target: Target, fields: Fields, *, default_port: int | None, needed: bool) -> None:
    """A Host header must say the same: the server behind a shared address goes by it."""
    named = [value for name, value in fields if name == b"host"]
    if len(named) > 1 or (needed and not named):
        _malformed("A request has exactly one Host header.", target)
    for value in named:
        try:
            same = _target(value, default_port=default_port or target.port) == target
        except Refused:
            same = False
        if not same:
            raise Refused("host_header", f"The Host header does not name {target.host}.", target.host)


def _body_bytes(fields: Fields, target: Target) -> int:
    if any(name == b"transfer-encoding" for name, _ in fields):
        _malformed("A request over plain HTTP needs a Content-Length; chunks are not passed on.", target)
    lengths = [value for name, value in fields if name == b"content-length"]
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        _malformed("A request has at most one Content-Length, in digits.", target)
    return int(lengths[0]) if lengths else 0


def _passed_on(fields: Fields) -> Fields:
    """Without those that are for this proxy, those that a Connection header names, and the host."""
    named = b",".join(value for name, value in fields if name == b"connection").lower().split(b",")
    left_out = _HOP_BY_HOP | {b"host"} | ({name.strip() for name in named} - {b"content-length"})
    return [(name, value) for name, value in fields if name not in left_out]


def _authority(target: Target) -> bytes:
    text = target.host if target.port == _HTTP_PORT else f"{target.host}:{target.port}"
    return text.encode()


def _malformed(sentence: str, target: Target) -> NoReturn:
    raise Refused("malformed", sentence, target.host)
