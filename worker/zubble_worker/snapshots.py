"""The tar of a work tree, read as the bytes of an enemy: nothing is unpacked, only plain entries count."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import archive

_FOLDER: Final = b"d"
_LINK: Final = b"l"


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
        return {
            record.path: _item(record, content)
            for record, content in archive.members(snapshot)
            if record.kind != _FOLDER
        }
    except ValueError as broken:
        raise SandboxUnavailable(f"The sandbox's snapshot is broken: {broken}.") from broken


def _item(record: archive.Record, content: memoryview) -> Item:
    if record.kind == _LINK:
        return Item(record.target, is_link=True)
    return Item(bytes(content), executable=bool(record.mode & 0o100))


def write(tree: Tree, *, links: bool = False) -> bytes:
    """The regular files of a tree as a tar, and its links where they are wanted.

    It is the same for the same tree; there is no owner, no time, no other mode.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(tree):
            item = tree[path]
            if item.is_link and not links:
                continue
            member = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
            if item.is_link:
                member.type, member.linkname = tarfile.SYMTYPE, item.data.decode("utf-8", "surrogateescape")
                tar.addfile(member)
            else:
                member.size, member.mode = len(item.data), 0o755 if item.executable else 0o644
                tar.addfile(member, io.BytesIO(item.data))
    return buffer.getvalue()
