"""What differs between a snapshot and a tree that is there now: pure, and both are the bytes of an enemy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from zubble_queue.contracts.sandbox import TreeDiff
from zubble_sandbox import archive
from zubble_sandbox.archive import Record

_OTHER: Final = b"o"
"""No snapshot holds sockets, pipes and devices."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a listing tells, and the files of which only their content can."""

    added: list[bytes]
    changed: list[bytes]
    deleted: list[bytes]
    undecided: list[tuple[bytes, memoryview]]
    """Path to the content that the snapshot has; the file that is there now is as long."""

    def diff(self, changed: Iterable[bytes]) -> TreeDiff:
        """The whole of it, once it is known which of the undecided files have other content."""
        return TreeDiff(_texts(self.added), _texts((*self.changed, *changed)), _texts(self.deleted))


def by_listing(snapshot: bytes, listing: bytes | bytearray) -> Comparison:
    """Compare without any file's content.

    Args:
        snapshot: The older one.
        listing: Of the work tree as it is, without what is ours.

    Raises:
        ValueError: One of them is not what a supervisor of ours gives, or there may be more than is listed.
    """
    listed = archive.records(listing)
    if len(listed) >= archive.MAX_ENTRIES:
        raise ValueError(f"the work tree holds {archive.MAX_ENTRIES} entries or more")
    now = {record.path: record for record in listed if record.kind != _OTHER}
    found = Comparison([], [], [], [])
    for before, content in archive.members(snapshot):
        after = now.pop(before.path, None)
        if after is None:
            found.deleted.append(before.path)
        elif _facts(before) != _facts(after):
            found.changed.append(before.path)
        elif content:
            found.undecided.append((before.path, content))
    found.added.extend(now)
    return found


def _facts(record: Record) -> tuple[bytes, int, int, bytes]:
    size = 0 if record.kind == b"l" else record.size
    return record.kind, record.mode & 0o777, size, record.target


def _texts(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(map(os.fsdecode, sorted(paths)))
