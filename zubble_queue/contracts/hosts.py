"""Names of hosts: how an allow-list writes them, how a request names one, and when the two agree.

There is one spelling of each name, in lower case and with A-labels; whatever has another one is refused or
turned into it before anything is compared. So no two parts can read the same text as two hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final

import idna
from pydantic import AfterValidator, Field, Strict

MAX_HOSTS: Final = 256
"""In one allow-list."""
_NAME_CHARS: Final = 253
_SHOWN_CHARS: Final = 80
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A name whose last label is one is an address to some resolvers: 127.1, 0x7f000001, 017700000001."""
_WILDCARD: Final = "*."
_LEAST_LABELS: Final = 2
_FORBIDDEN: Final = (
    (re.compile(r"[\s\x00-\x1f\x7f]"), "must not hold spaces or control characters"),
    (re.compile(r"[/\\?#]"), "must be a name, not a URL"),
    (re.compile(r"@"), "must not hold a user name"),
    (re.compile(r"[:\[\]]"), "must be a name, without a port and not an address"),
    (re.compile(r"\.\Z"), "must not end with a dot"),
)


def host_name(text: str) -> str:
    """The one spelling of a host that a request names.

    Raises ValueError, with the half sentence that follows the name, for everything but letters, digits and
    dashes in at least two labels; addresses in all their forms included.
    """
    if not text.isascii():
        raise ValueError("must be given with A-labels (xn--…)")
    name = text.lower()
    labels = name.split(".")
    if len(name) > _NAME_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError("is not the name of a host")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("is an address, not a name")
    if len(labels) < _LEAST_LABELS:
        raise ValueError("has no dot in it")
    return name


def host_pattern(text: str) -> str:
    """The one spelling of an entry of an allow-list: a name, or `*.name` for every name below it.

    Raises ValueError with one sentence.
    """
    try:
        return _pattern(text)
    except ValueError as wrong:
        raise ValueError(f"{text[:_SHOWN_CHARS]!r} {wrong}") from wrong


def matches(pattern: str, name: str) -> bool:
    """Whether an entry covers a name, both as the functions above return them."""
    return name.endswith(pattern[1:]) if pattern.startswith(_WILDCARD) else name == pattern


def _pattern(text: str) -> str:
    wildcard, name = ("", text) if not text.startswith(_WILDCARD) else (_WILDCARD, text[len(_WILDCARD) :])
    for sign, problem in _FORBIDDEN:
        if sign.search(name):
            raise ValueError(problem)
    if "*" in name:
        raise ValueError("may have a star only as its first label, as in *.example.org")
    if len(name) > _NAME_CHARS:
        raise ValueError("is not the name of a host")
    if wildcard and "." not in name:
        raise ValueError("is too wide: at least two labels must follow the star, as in *.example.org")
    try:
        return wildcard + host_name(idna.encode(name, uts46=True, std3_rules=True).decode("ascii"))
    except idna.IDNAError as invalid:
        raise ValueError("is not the name of a host") from invalid


def _in_one_order(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(patterns)))


AllowedHosts = Annotated[
    tuple[Annotated[str, AfterValidator(host_pattern)], ...],
    Strict(strict=False),
    Field(max_length=MAX_HOSTS),
    AfterValidator(_in_one_order),
]
"""An allow-list: names and `*.names`, in their one spelling, each once, sorted."""
