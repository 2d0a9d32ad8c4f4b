"""What an agent changed: two snapshots of a work tree compared, as bytes, without unpacking anything."""

from __future__ import annotations

import difflib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zubble_queue.errors import SandboxUnavailable

_DIFFED_BYTES: Final = 262_144
"""A larger or a binary file counts by its lines alone; difflib is quadratic at worst."""
_LISTED_FILES: Final = 500


@dataclass(frozen=True, slots=True)
class Changes:
    """Files touched (at most 500 are named) and lines added and removed."""

    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


def files_in(snapshot: bytes) -> dict[str, bytes]:
    """Path to content of the regular files and symbolic links (as their target) of a snapshot.

    Raises SandboxUnavailable when it is no tar: the sandbox made it, and is no longer to be trusted.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(snapshot), mode="r:") as tar:
            for member in tar:
                if member.isreg():
                    stream = tar.extractfile(member)
                    found[member.name] = stream.read() if stream else b""
                elif member.issym():
                    found[member.name] = member.linkname.encode("utf-8", "surrogateescape")
    except tarfile.TarError as broken:
        raise SandboxUnavailable(f"The sandbox's snapshot is broken: {broken}") from broken
    return found


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Changes:
    """Everything that differs between two trees."""
    touched = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    added = removed = 0
    for path in touched:
        plus, minus = _lines(before.get(path, b""), after.get(path, b""))
        added, removed = added + plus, removed + minus
    names = tuple(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for path in touched)
    return Changes(names[:_LISTED_FILES], added, removed)


def _lines(before: bytes, after: bytes) -> tuple[int, int]:
    if max(len(before), len(after)) > _DIFFED_BYTES or b"\0" in before or b"\0" in after:
        difference = after.count(b"\n") - before.count(b"\n")
        return max(difference, 0), max(-difference, 0)
    plus = minus = 0
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=True)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            plus, minus = plus + new_to - new_from, minus + old_to - old_from
    return plus, minus
