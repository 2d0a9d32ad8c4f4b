"""The folder that the iterations of a loop work on, one after the other, each on a copy of it.

What comes back was written by a model and its commands: only regular files, and links that stay inside, are
written; no link is followed; `.git`, whose files git would run, and `.zubble`, which is ours, are left alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zubble_queue.contracts.sandbox import MIB
from zubble_queue.errors import BadInput
from zubble_worker import snapshots
from zubble_worker.snapshots import Item, Tree

MOST_BYTES: Final = 128 * MIB
"""Of all files together: half of a sandbox's work tree, so that the agent has as much room."""
MOST_FILES: Final = 50_000
_APART: Final = frozenset({b".git", b".zubble"})


class Folder:
    """A folder of this machine.

    Args:
        path: Made when it is first read, where it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: Tree = {}

    def read(self) -> bytes:
        """Its files and links as a snapshot; empty folders are no part of it.

        Raises:
            BadInput: Something cannot be read, or it is too large.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._read = self._tree()
        except OSError as failed:
            raise BadInput([f"{failed.filename} cannot be read: {failed.strerror}."]) from failed
        return snapshots.write(self._read, links=True)

    def take(self, snapshot: bytes) -> Tree:
        """Make it what an iteration left; what others changed since `read`, and the iteration did not, stays.

        Returns what the snapshot holds.

        Raises:
            BadInput: A file cannot be written.
            SandboxUnavailable: It is no snapshot.
        """
        new = self.look(snapshot)
        try:
            for path in self._read.keys() - new.keys():
                self._remove(path)
            for path, item in new.items():
                if item != self._read.get(path):
                    self._write(path, item)
        except OSError as failed:
            raise BadInput([f"{failed.filename} cannot be written: {failed.strerror}."]) from failed
        self._read = new
        return new

    def look(self, snapshot: bytes) -> dict[bytes, Item]:
        """What would be taken of a snapshot. Raises SandboxUnavailable."""
        return {path: item for path, item in snapshots.read(snapshot).items() if _is_kept(path, item)}

    @property
    def tree(self) -> Tree:
        """As read or taken last."""
        return self._read

    def _tree(self) -> Tree:
        tree: dict[bytes, Item] = {}
        room = MOST_BYTES
        for path in self._paths():
            name = os.fsencode(path.relative_to(self.path))
            info = path.lstat()
            if stat.S_ISLNK(info.st_mode):
                item = Item(os.fsencode(path.readlink()), is_link=True)
            elif stat.S_ISREG(info.st_mode):
                room -= info.st_size
                if room < 0 or len(tree) >= MOST_FILES:
                    raise BadInput([_TOO_LARGE.format(self.path)])
                item = Item(path.read_bytes(), executable=bool(info.st_mode & 0o100))
            else:  # a socket, a pipe, a device
                continue
            if _is_kept(name, item):
                tree[name] = item
        return tree

    def _paths(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self.path, onerror=_raise):
            links = [name for name in folders if Path(folder, name).is_symlink()]
            folders[:] = sorted(name for name in folders if os.fsencode(name) not in _APART)
            yield from (Path(folder, name) for name in sorted((*files, *links)))

    def _write(self, path: bytes, item: Item) -> None:
        target = self._reached(path)
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        new = target.with_name(f".zubble-{os.getpid()}.new")
        if item.is_link:
            new.symlink_to(os.fsdecode(item.data))
        else:
            new.write_bytes(item.data)
            new.chmod(0o755 if item.executable else 0o644)
        new.replace(target)

    def _reached(self, path: bytes) -> Path:
        """Where a path is, its folders made; a link or file on the way gives way to a folder."""
        *folders, name = os.fsdecode(path).split("/")
        at = self.path
        for folder in folders:
            at = at / folder
            if at.is_symlink() or (at.exists() and not at.is_dir()):
                at.unlink()
            at.mkdir(exist_ok=True)
        return at / name

    def _remove(self, path: bytes) -> None:
        """With the folders that are empty then."""
        target = self.path / os.fsdecode(path)
        within = [parent for parent in target.parents if parent != self.path and self.path in parent.parents]
        if any(parent.is_symlink() for parent in within):
            return
        target.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            for parent in within:
                parent.rmdir()


_TOO_LARGE: Final = (
    f"{{}} holds more than {MOST_FILES:,} files or {MOST_BYTES // MIB} MiB; move what is not worked on away."
)


def _is_kept(path: bytes, item: Item) -> bool:
    parts = path.split(b"/")
    return not any(part.lower() in _APART for part in parts) and not (
        item.is_link and _leaves(item.data, depth=len(parts) - 1)
    )


def _leaves(target: bytes, *, depth: int) -> bool:
    """Whether a link could lead out: up steps are safe at its beginning only, through true folders."""
    steps = target.split(b"/")
    up = next((at for at, step in enumerate(steps) if step != b".."), len(steps))
    return target.startswith(b"/") or up > depth or b".." in steps[up:]


def _raise(error: OSError) -> None:
    raise error
