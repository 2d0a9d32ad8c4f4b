# pathlib and contextlib are slow to import:
# ruff: noqa: PTH101, SIM105
"""Walking a tree that somebody hostile is changing: every component by descriptor, no link ever followed."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` are slow to import
    from collections.abc import Iterator, Mapping

MAX_DEPTH = 128
"""Folders below this are named but not entered; one descriptor is open for each level."""
MAX_FOLDER_ENTRIES = 100_000
"""Of a larger folder only so many entries are looked at, in the order the kernel gives them."""
MAX_ENTRIES = 200_000
"""Entries of one snapshot or fingerprint."""

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """A path that was resolved to an open parent folder and a name in it ('.' for a root itself)."""

    def __init__(self, parent: int, name: bytes) -> None:
        self.parent, self.name = parent, name

    def __enter__(self) -> Place:  # noqa: PYI034 - `typing.Self` is newer than 3.9
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.parent)


class Roots:
    """The folders that may be reached, by the first part of an absolute path; relative paths mean work."""

    def __init__(self, folders: Mapping[bytes, bytes]) -> None:
        self._fds = {
            name: os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for name, folder in folders.items()
        }
        self.work = self._fds[b"work"]

    def place(self, path: bytes, *, make_folders: bool = False) -> Place:
        """Raises OSError: ELOOP at a symbolic link, EACCES outside the roots, and what opening raises."""
        root, parts = self._split(path)
        fd = os.open(b".", _FOLDER, dir_fd=root)
        try:
            for part in parts[:-1]:
                if make_folders:
                    _make_folder(fd, part)
                fd = _step(fd, part)
        except BaseException:
            os.close(fd)
            raise
        return Place(fd, parts[-1] if parts else b".")

    def open_folder(self, path: bytes) -> int:
        """A readable descriptor of a folder."""
        with self.place(path) as place:
            return open_beneath(place.parent, place.name, os.O_RDONLY | os.O_DIRECTORY)

    def _split(self, path: bytes) -> tuple[int, list[bytes]]:
        parts = [part for part in path.split(b"/") if part not in {b"", b"."}]
        if b".." in parts or b"\0" in path:
            raise OSError(errno.EACCES, "a path may not hold '..' or NUL")
        if not path.startswith(b"/"):
            return self.work, parts
        if not parts or parts[0] not in self._fds:
            raise OSError(errno.EACCES, "only /work, /tmp and /verify can be reached")
        return self._fds[parts[0]], parts[1:]


def open_beneath(parent: int, name: bytes, flags: int, mode: int = 0o600) -> int:
    """Open without following a link and without blocking on a FIFO."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=parent)
    except NotADirectoryError as error:
        raise _link_or(error, parent, name) from None


def open_regular(parent: int, name: bytes) -> tuple[int, os.stat_result]:
    """Open for reading. Raises IsADirectoryError, and OSError(EINVAL) for what is not a regular file."""
    fd = open_beneath(parent, name, os.O_RDONLY)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode):
        return fd, info
    os.close(fd)
    if stat.S_ISDIR(info.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file")


def _step(fd: int, part: bytes) -> int:
    try:
        inner = os.open(part, _FOLDER, dir_fd=fd)
    except NotADirectoryError as error:
        raise _link_or(error, fd, part) from None
    os.close(fd)
    return inner


def _link_or(error: OSError, parent: int, name: bytes) -> OSError:
    if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        return OSError(errno.ELOOP, "a symbolic link is not followed")
    return error


def _make_folder(fd: int, part: bytes) -> None:
    try:
        os.mkdir(part, 0o755, dir_fd=fd)
    except FileExistsError:
        pass


class Entry:
    """One thing found by `walk`; `parent` is open only until the walk goes on."""

    def __init__(self, path: bytes, parent: int, info: os.stat_result) -> None:
        self.path, self.parent, self.info = path, parent, info

    @property
    def name(self) -> bytes:
        return self.path.rpartition(b"/")[2]

    @property
    def kind(self) -> bytes:
        return _KINDS.get(stat.S_IFMT(self.info.st_mode), b"other")


_KINDS = {stat.S_IFREG: b"file", stat.S_IFDIR: b"directory", stat.S_IFLNK: b"symlink"}


def walk(folder: int, *, skip: frozenset[bytes] = frozenset()) -> Iterator[Entry]:
    """Everything below an open folder, sorted by path.

    `skip` names entries of the folder itself to leave out. Folders that cannot be opened (mode 000, gone,
    swapped for a link) are named and not entered.
    """
    levels = [(folder, b"", iter(_visits(folder, skip)))]
    try:
        while levels:
            fd, prefix, visits = levels[-1]
            visit = next(visits, None)
            if visit is None:
                levels.pop()
                if fd != folder:
                    os.close(fd)
                continue
            key, info = visit
            if not key.endswith(b"/"):
                yield Entry(prefix + key, fd, info)
            elif len(levels) <= MAX_DEPTH and (inner := _enter(fd, key[:-1])) is not None:
                levels.append((inner, prefix + key, iter(_visits(inner, frozenset()))))
    finally:
        for fd, _, _ in levels[1:]:
            os.close(fd)


def _visits(fd: int, skip: frozenset[bytes]) -> list[tuple[bytes, os.stat_result]]:
    """Each entry under its name, each folder again under `name/`: sorted, that is the order of paths."""
    visits: list[tuple[bytes, os.stat_result]] = []
    with os.scandir(fd) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_FOLDER_ENTRIES:
                break
            name = os.fsencode(entry.name)
            if name in skip or (info := _stat(entry)) is None:
                continue
            visits.append((name, info))
            if stat.S_ISDIR(info.st_mode):
                visits.append((name + b"/", info))
    visits.sort(key=lambda visit: visit[0])
    return visits


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _enter(fd: int, name: bytes) -> int | None:
    try:
        return open_beneath(fd, name, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None


def empty(folder: int, *, keep: frozenset[bytes] = frozenset()) -> None:
    """Remove everything in a folder that nobody else writes to, however deep and whatever its modes.

    Sub-folders are moved up to the top before they are emptied, so depth costs neither descriptors nor stack.
    """
    aside, counter = b".zubble-removed-" + os.urandom(8).hex().encode(), 0
    while names := [name for name in _names(folder) if name not in keep]:
        for name in names:
            if not _is_folder(folder, name):
                os.unlink(name, dir_fd=folder)
                continue
            inner = _open_whatever_its_mode(folder, name)
            try:
                for child in _names(inner):
                    if not _is_folder(inner, child):
                        os.unlink(child, dir_fd=inner)
                        continue
                    os.close(_open_whatever_its_mode(inner, child))
                    counter += 1
                    os.rename(child, b"%s-%d" % (aside, counter), src_dir_fd=inner, dst_dir_fd=folder)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)


def _names(fd: int) -> list[bytes]:
    with os.scandir(fd) as entries:
        return [os.fsencode(entry.name) for entry in entries]


def _is_folder(fd: int, name: bytes) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)


def _open_whatever_its_mode(parent: int, name: bytes) -> int:
    handle = os.open(name, _FOLDER, dir_fd=parent)
    try:
        link = b"/proc/self/fd/%d" % handle
        os.chmod(link, 0o700)
        return os.open(link, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
