"""Layers on top of each other in one folder: every component by descriptor, no link followed out of it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from zubble_sandbox.images import beneath
from zubble_sandbox.images.entries import MAX_BYTES, MAX_ENTRIES, MAX_TARGET_BYTES, BadImage, Entry, shown

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WHITEOUT, _OPAQUE, _AUFS = b".wh.", b".wh..wh..opq", b".wh..wh."
_KEPT, _EXECUTABLE, _READABLE, _ENTERABLE = 0o755, 0o111, 0o444, 0o755
PLACES: Final = (b"hosts", b"passwd", b"group", b"resolv.conf")
"""Of /etc: each machine has its own, so tools leave them out of images, or leave a link to nowhere."""
_MAX_MTIME: Final = 2**33
_ELF_MACHINES: Final = {62: "amd64", 183: "arm64"}
_ELF_BYTES: Final = 20

Parts = tuple[bytes, ...]


@dataclass
class Unpacked:
    """What became of it."""

    entries: int = 0
    bytes: int = 0
    skipped: int = 0
    """Devices, FIFOs and sockets, which are left out."""
    machine: str | None = None
    """Of the first program in it, as images name it."""


@dataclass
class Unpacking:
    """One root file system that is being written; nobody else writes to its folder.

    Owners are not kept, and neither are setuid, setgid and sticky bits, capabilities or other attributes.
    What somebody may read or execute, everybody may: an image has no secrets from its own commands, and those
    run as a user it does not know.

    Args:
        folder: An empty folder to write it to.
        trash: An empty folder on the same file system, for what a later layer removes.
        room_bytes: The most that all files may hold.
    """

    folder: Path
    trash: Path
    room_bytes: int = MAX_BYTES
    result: Unpacked = field(default_factory=Unpacked)
    _root: int = -1
    _touched: set[bytes] = field(default_factory=set)
    _thrown: Iterator[int] = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        self._root = os.open(self.folder, _FOLDER)
        os.chmod(self.folder, _ENTERABLE)  # noqa: PTH101 - the same in both spellings
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def apply(self, layer: Iterable[Entry]) -> None:
        """Put a layer on top. Raises BadImage for an entry that breaks a rule, and OSError when full."""
        self._touched = set()
        for entry in layer:
            self.result.entries += 1
            if self.result.entries > MAX_ENTRIES:
                raise BadImage(f"The image holds more than {MAX_ENTRIES} entries.")
            try:
                self._take(entry)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE}:
                    raise
                raise BadImage(
                    f"The image's {shown(entry.path)} cannot be made: {error.strerror}."
                ) from error

    def complete(self) -> None:
        """Make the files over which those of a sandbox are laid, where the image has none of its own."""
        if not stat.S_ISDIR(getattr(_lstat(self._root, b"etc"), "st_mode", 0)):
            return
        with self._open((b"etc",)) as etc:
            for name in PLACES:
                there = _lstat(etc, name)
                if there is not None and stat.S_ISLNK(there.st_mode):
                    self._throw(etc, name)
                    there = None
                if there is None:
                    self._write(Entry((b"etc", name), "file", 0o644), etc, name)

    def _take(self, entry: Entry) -> None:
        if not entry.parts:
            return
        *above, name = entry.parts
        parent = tuple(above)
        if name == _OPAQUE:
            self._clear(parent)
        elif name.startswith(_AUFS):
            self.result.skipped += 1
        elif name.startswith(_WHITEOUT):
            self._white_out(parent, name.removeprefix(_WHITEOUT))
        elif entry.kind == "other":
            self.result.skipped += 1
        else:
            self._touch(entry.parts)
            with self._open(parent, make=True) as fd:
                self._make(entry, fd, name)

    def _touch(self, parts: Parts) -> None:
        """Remember what this layer has: a later whiteout of it does not mean it."""
        while parts and (path := b"/".join(parts)) not in self._touched:
            self._touched.add(path)
            parts = parts[:-1]

    @contextlib.contextmanager
    def _open(self, parts: Parts, *, make: bool = False) -> Iterator[int]:
        fd = self._opened(parts, make=make)
        try:
            yield fd
        finally:
            os.close(fd)

    def _opened(self, parts: Parts, *, make: bool) -> int:
        try:
            return beneath.opened(self._root, b"/".join(parts), _FOLDER, beneath.IN_ROOT)
        except FileNotFoundError:
            if not make:
                raise
        with self._open(parts[:-1], make=True) as above:
            os.mkdir(parts[-1], _ENTERABLE, dir_fd=above)  # a dangling link there is FileExistsError
            _set_folder_mode(above, parts[-1])
        return beneath.opened(self._root, b"/".join(parts), _FOLDER, beneath.IN_ROOT)

    def _make(self, entry: Entry, parent: int, name: bytes) -> None:
        there = _lstat(parent, name)
        if there is not None and not (stat.S_ISDIR(there.st_mode) and entry.kind == "folder"):
            self._throw(parent, name)
            there = None
        if entry.kind == "folder":
            if there is None:
                os.mkdir(name, _ENTERABLE, dir_fd=parent)
                _set_folder_mode(parent, name)
        elif entry.kind == "symlink":
            if not 0 < len(entry.target) <= MAX_TARGET_BYTES or b"\0" in entry.target:
                raise BadImage(f"The image's link {shown(entry.path)} leads nowhere.")
            os.symlink(entry.target, name, dir_fd=parent)
        elif entry.kind == "hardlink":
            self._link(entry, parent, name)
        else:
            self._write(entry, parent, name)

    def _link(self, entry: Entry, parent: int, name: bytes) -> None:
        from_parts = tuple(part for part in entry.target.split(b"/") if part not in {b"", b"."})
        if not from_parts or b".." in from_parts or b"\0" in entry.target:
            raise BadImage(f"The image's hard link {shown(entry.path)} leads out of its root.")
        with self._open(from_parts[:-1]) as other:
            there = _lstat(other, from_parts[-1])
            if there is None or stat.S_ISDIR(there.st_mode):
                raise BadImage(f"The image's hard link {shown(entry.path)} is to a file that is not there.")
            os.link(from_parts[-1], name, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)

    def _write(self, entry: Entry, parent: int, name: bytes) -> None:
        self._count(entry.size, 0)
        written = 0
        fd = os.open(
            name,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
            dir_fd=parent,
        )
        with os.fdopen(fd, "wb", buffering=0) as file:
            for piece in entry.pieces():
                if not written:
                    self._look_at(piece)
                written += len(piece)
                self._count(written, 0)
                _write_all(fd, piece)
            executable = _EXECUTABLE if entry.mode & _EXECUTABLE else 0
            os.fchmod(fd, (entry.mode & _KEPT) | _READABLE | executable)
            mtime = min(max(0, entry.mtime), _MAX_MTIME)
            os.utime(file.fileno(), (mtime, mtime))
        self._count(0, written)

    def _count(self, coming: int, come: int) -> None:
        self.result.bytes += come
        if self.result.bytes + coming > self.room_bytes:
            raise BadImage(
                f"The image's files are larger than the {self.room_bytes} bytes there is room for."
            )

    def _look_at(self, beginning: bytes) -> None:
        if self.result.machine is None and beginning[:4] == b"\x7fELF" and len(beginning) >= _ELF_BYTES:
            self.result.machine = _ELF_MACHINES.get(int.from_bytes(beginning[18:20], "little"), "other")

    def _white_out(self, parent: Parts, name: bytes) -> None:
        if name in {b"", b".", b".."}:
            raise BadImage("The image removes a file that has no name.")
        if b"/".join((*parent, name)) in self._touched:
            return
        with contextlib.suppress(FileNotFoundError), self._open(parent) as fd:
            self._throw(fd, name)

    def _clear(self, parts: Parts) -> None:
        """Remove what lower layers put into a folder, and below it."""
        waiting = [parts]
        while waiting:
            parts = waiting.pop()
            with contextlib.suppress(FileNotFoundError), self._open(parts) as fd:
                for name in beneath.names(fd):
                    inner = (*parts, name)
                    if b"/".join(inner) not in self._touched:
                        self._throw(fd, name)
                    elif stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                        waiting.append(inner)

    def _throw(self, parent: int, name: bytes) -> None:
        target = self.trash / str(next(self._thrown))
        os.rename(name, target, src_dir_fd=parent)


def _lstat(parent: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _set_folder_mode(parent: int, name: bytes) -> None:
    """Whatever the umask left of it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=parent)
    try:
        os.fchmod(fd, _ENTERABLE)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
