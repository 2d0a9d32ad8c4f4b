"""Walking a folder: one that is to become an image, and one that did, whose content gives it its name."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_sandbox.images import beneath
from zubble_sandbox.images.entries import BadImage, Entry, Kind, nothing
from zubble_sandbox.images.streams import CHUNK_BYTES

_KINDS: Final[dict[int, Kind]] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}


def walk(folder: Path) -> Iterator[Entry]:
    """Everything below a folder, each folder before what is in it; no link is followed.

    Raises BadImage when it is too deep to be walked, and OSError.
    """
    root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        waiting: list[tuple[bytes, ...]] = [()]
        while waiting:
            parts = waiting.pop()
            fd = _opened(root, parts, os.O_PATH | os.O_DIRECTORY)
            try:
                inner = [_entry(fd, parts, name) for name in beneath.names(fd)]
                yield from inner
            finally:
                os.close(fd)
            waiting += reversed([entry.parts for entry in inner if entry.kind == "folder"])
    finally:
        os.close(root)


def _opened(root: int, parts: tuple[bytes, ...], flags: int) -> int:
    try:
        return beneath.opened(root, b"/".join(parts), flags, beneath.NO_LINKS)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadImage("The image's folders are nested too deeply.") from error
        raise


def _entry(parent: int, above: tuple[bytes, ...], name: bytes) -> Entry:
    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    kind = _KINDS.get(stat.S_IFMT(info.st_mode), "other")
    return Entry(
        parts=(*above, name),
        kind=kind,
        mode=stat.S_IMODE(info.st_mode),
        mtime=int(info.st_mtime),
        size=info.st_size if kind == "file" else 0,
        target=os.readlink(name, dir_fd=parent) if kind == "symlink" else b"",
        pieces=_Content(parent, name) if kind == "file" else nothing,
    )


@dataclass(frozen=True, slots=True)
class _Content:
    """Of a file, while its folder is open."""

    parent: int
    name: bytes

    def __call__(self) -> Iterator[bytes]:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self.name, flags, dir_fd=self.parent), "rb", buffering=0) as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece


def digest(folder: Path) -> str:
    """The name of a tree by its content: paths, kinds, modes and times of files, targets, bytes."""
    total = hashlib.sha256()
    for entry in walk(folder):
        fields = [entry.path, entry.kind.encode(), entry.target]
        if entry.kind == "file":
            content = hashlib.sha256()
            for piece in entry.pieces():
                content.update(piece)
            fields += [b"%o" % entry.mode, b"%d" % entry.mtime, content.digest()]
        total.update(b"".join(b"%d:%b" % (len(field), field) for field in fields) + b"\n")
    return f"sha256:{total.hexdigest()}"
