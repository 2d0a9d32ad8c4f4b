"""What an agent changed: two snapshots of a work tree compared, as a patch, as files and as numbers.

Nothing is unpacked and no `git` runs: whatever an agent planted in its tree is data here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from zubble_worker import patch, snapshots
from zubble_worker.linediff import Budget, regions
from zubble_worker.snapshots import Item, Tree

TEXT_BYTES: Final = 262_144
"""A larger or a binary file counts by its lines alone, and only its name is in the patch."""
PATCH_BYTES: Final = 4 * 1_048_576
FILES_BYTES: Final = 64 * 1_048_576
FILES: Final = 2_000
"""The most of a tree that is kept as changed files."""
PATH_BYTES: Final = 1_024
DEPTH: Final = 64
LISTED_FILES: Final = 500
_NOTES: Final = 200


@dataclass(frozen=True, slots=True)
class Changes:
    """Files touched (at most 500 are named) and lines added and removed."""

    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Edits:
    """All that differs between two trees, within the caps."""

    changes: Changes = Changes()
    patch: bytes = b""
    """A unified diff for `git apply` or `patch -p1`. Lines with # before it name what it cannot hold: binary
    and large files, symbolic links, and what was left out."""
    files: bytes = b""
    """A tar of the files that are new or different: regular ones, without owners, times and special modes."""


def compare(before: bytes, after: bytes, *, only: Collection[bytes] | None = None) -> Edits:
    """Compare two snapshots; takes bounded time, but up to a second: to be called in a thread.

    Args:
        before: The older one.
        after: The newer one.
        only: Where the newer one is a part of its tree: the paths about which it says something, be it that
            they are gone. None for all.

    Raises:
        SandboxUnavailable: One of them is not what `Sandbox.snapshot` promises.
    """
    old, new = snapshots.read(before), snapshots.read(after)
    return _Comparison(old if only is None else {path: old[path] for path in old.keys() & only}, new).edits()


@dataclass(slots=True)
class _Comparison:
    before: Tree
    after: Tree
    budget: Budget = field(default_factory=Budget)
    added: int = 0
    removed: int = 0
    notes: list[bytes] = field(default_factory=list)

    def edits(self) -> Edits:
        paths = self.before.keys() | self.after.keys()
        touched = sorted(path for path in paths if self.before.get(path) != self.after.get(path))
        if not touched:
            return Edits()
        fit = [path for path in touched if self._fits(path)]
        diffs = b"".join(self._diffs(fit))
        kept = self._kept(fit)
        names = tuple(path.decode("utf-8", "replace") for path in touched[:LISTED_FILES])
        changes = Changes(names, self.added, self.removed)
        return Edits(changes, self._head() + diffs, snapshots.write(kept) if kept else b"")

    def _diffs(self, touched: Sequence[bytes]) -> Iterator[bytes]:
        room = PATCH_BYTES
        for path in touched:
            old, new = self.before.get(path), self.after.get(path)
            diff = self._diff(path, old, new)
            if len(diff) > room:
                self._note(b"not in this patch, which would be too large", path, new or old)
            else:
                room -= len(diff)
                yield diff

    def _fits(self, path: bytes) -> bool:
        fits = len(path) <= PATH_BYTES and path.count(b"/") < DEPTH
        if not fits:
            self._count_lines(self.before.get(path), self.after.get(path))
            self._note(b"left out, its path is too long or too deep", path, None)
        return fits

    def _diff(self, path: bytes, old: Item | None, new: Item | None) -> bytes:
        if not (_is_text(old) and _is_text(new)):
            self._count_lines(old, new)
            is_link = any(item and item.is_link for item in (old, new))
            self._note(b"symbolic link" if is_link else b"binary or large file", path, new or old)
            return b""
        old_lines, new_lines = patch.lines(old), patch.lines(new)
        found = regions(old_lines, new_lines, self.budget)
        self.removed += sum(region.old_to - region.old_from for region in found)
        self.added += sum(region.new_to - region.new_from for region in found)
        return patch.of_file(path, (old, old_lines), (new, new_lines), found)

    def _count_lines(self, old: Item | None, new: Item | None) -> None:
        difference = sum(
            sign * item.data.count(b"\n") for sign, item in ((1, new), (-1, old)) if item and not item.is_link
        )
        self.added, self.removed = self.added + max(difference, 0), self.removed + max(-difference, 0)

    def _kept(self, touched: Sequence[bytes]) -> dict[bytes, Item]:
        kept: dict[bytes, Item] = {}
        room = FILES_BYTES
        for path in touched:
            new = self.after.get(path)
            if new is None or new.is_link:
                continue
            if len(kept) < FILES and len(new.data) <= room:
                kept[path], room = new, room - len(new.data)
            else:
                self._note(b"not among the changed files, which would be too many or too large", path, new)
        return kept

    def _note(self, what: bytes, path: bytes, item: Item | None) -> None:
        size = b"" if item is None else b" (%d bytes)" % len(item.data)
        target = b" -> " + patch.quoted(item.data[:PATH_BYTES]) if item and item.is_link else b""
        gone = b"" if path in self.after else b", removed"
        self.notes.append(b"# %s: %s%s%s%s\n" % (what, patch.quoted(path[:PATH_BYTES]), target, size, gone))

    def _head(self) -> bytes:
        more = len(self.notes) - _NOTES
        last = [b"# and %d more\n" % more] if more > 0 else []
        return b"".join([*self.notes[:_NOTES], *last])


def _is_text(item: Item | None) -> bool:
    if item is None:
        return True
    return not item.is_link and len(item.data) <= TEXT_BYTES and b"\0" not in item.data
