"""The tar of a work tree, read as the bytes of an enemy: nothing is unpacked, and only plain entries count.

`tarfile` is not used for reading: it expands sparse files, and its older versions do not end on some headers.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from zubble_queue.errors import SandboxUnavailable

_BLOCK: Final = 512
_NAME_BYTES: Final = 65_536
_LONG_LINK, _LONG_NAME, _REGULAR, _LINK, _FOLDER = b"K", b"L", b"0", b"2", b"5"


@dataclass(frozen=True, slots=True)
class Item:
    """A regular file, or a symbolic link with its target as data."""

    data: bytes
    executable: bool = False
    is_link: bool = False


Tree = Mapping[bytes, Item]
"""By path below the work tree; folders are not in it."""


def read(snapshot: bytes) -> dict[bytes, Item]:
    """What a snapshot holds.

    Raises:
        SandboxUnavailable: It is not what `Sandbox.snapshot` promises.
    """
    try:
        return dict(_items(snapshot))
    except ValueError as broken:
        raise SandboxUnavailable(f"The sandbox's snapshot is broken: {broken}.") from broken


def _items(snapshot: bytes) -> Iterator[tuple[bytes, Item]]:
    at, long = 0, dict[bytes, bytes]()
    while any(header := snapshot[at : at + _BLOCK]):
        kind, size = header[156:157], _checked_size(header)
        at += _BLOCK
        data = snapshot[at : at + size]
        if len(data) < size:
            raise ValueError("it ends within an entry")
        at += size + -size % _BLOCK
        if kind in {_LONG_LINK, _LONG_NAME}:
            long[kind] = data[:_NAME_BYTES].rstrip(b"\0")
            continue
        path = _checked_path(long.get(_LONG_NAME) or _text(header[:100]))
        if kind == _REGULAR:
            yield path, Item(data, executable=bool(_number(header[100:108]) & 0o100))
        elif kind == _LINK:
            yield path, Item(long.get(_LONG_LINK) or _text(header[157:257]), is_link=True)
        elif kind != _FOLDER:
            raise ValueError(f"it holds an entry of kind {kind!r}")
        long.clear()


def _checked_size(header: bytes) -> int:
    if len(header) < _BLOCK:
        raise ValueError("it ends within a header")
    if _number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
        raise ValueError("a header has a wrong checksum")
    return _number(header[124:136])


def _number(field: bytes) -> int:
    """Octal digits only: what `int` also allows (signs, underscores, base-256) is refused."""
    digits = field.strip(b"\0 ")
    if digits.strip(b"01234567"):
        raise ValueError("a header has a number that is none")
    return int(digits or b"0", 8)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _checked_path(path: bytes) -> bytes:
    parts = path.rstrip(b"/").split(b"/")
    if b"\0" in path or any(part in {b"", b".", b".."} for part in parts):
        raise ValueError("a path leads out of the work tree")
    return b"/".join(parts)


def write(tree: Tree) -> bytes:
    """The regular files of a tree as a tar: the same for the same tree; no owner, no time, no other mode."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(tree):
            if not (item := tree[path]).is_link:
                member = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
                member.size, member.mode = len(item.data), 0o755 if item.executable else 0o644
                tar.addfile(member, io.BytesIO(item.data))
    return buffer.getvalue()
