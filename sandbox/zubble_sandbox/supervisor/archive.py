"""The work tree as a tar: written entry by entry from descriptors, read back as the bytes of an enemy."""

from __future__ import annotations

import errno
import os
import stat

from zubble_sandbox.supervisor import wire
from zubble_sandbox.supervisor.files import PRIVATE, write_all
from zubble_sandbox.supervisor.tree import (
    MAX_ENTRIES,
    Entry,
    Place,
    Roots,
    empty,
    open_beneath,
    open_regular,
    walk,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` are slow to import
    from collections.abc import Iterator

BLOCK = 512
MAX_NAME_BYTES = 65_536
_LONG_LINK, _LONG_NAME, _REGULAR, _SYMLINK, _FOLDER = b"K", b"L", b"0", b"2", b"5"


def snapshot(roots: Roots, max_bytes: int) -> Iterator[bytes]:
    """Pieces of a tar, the same for the same tree; what its owner cannot read is left out.

    Raises ValueError when it would be larger than max_bytes or hold more than MAX_ENTRIES entries.
    """
    written = 2 * BLOCK
    for count, entry in enumerate(walk(roots.work, skip=PRIVATE)):
        if count >= MAX_ENTRIES:
            raise ValueError(f"the work tree holds more than {MAX_ENTRIES} entries")
        for piece in _entry(entry, max_bytes - written):
            written += len(piece)
            if written > max_bytes:
                raise ValueError(f"the work tree is larger than {max_bytes} bytes")
            yield piece
    yield bytes(2 * BLOCK)


def _entry(entry: Entry, room: int) -> Iterator[bytes]:
    mode = stat.S_IMODE(entry.info.st_mode) & 0o777
    if entry.kind == b"directory":
        yield _header(entry.path, _FOLDER, mode)
    elif entry.kind == b"symlink":
        yield from _link(entry)
    elif entry.kind == b"file":
        yield from _file(entry, mode, room)


def _link(entry: Entry) -> Iterator[bytes]:
    try:
        target = os.readlink(entry.name, dir_fd=entry.parent)
    except OSError:
        return
    yield _header(entry.path, _SYMLINK, 0o777, target=target)


def _file(entry: Entry, mode: int, room: int) -> Iterator[bytes]:
    try:
        fd, info = open_regular(entry.parent, entry.name)
    except OSError:
        return
    with os.fdopen(fd, "rb", buffering=0) as file:
        if info.st_size > room:
            raise ValueError("the work tree is larger than the snapshot may be")
        yield _header(entry.path, _REGULAR, mode, size=info.st_size, mtime=int(info.st_mtime))
        left = info.st_size
        while left and (piece := file.read(min(left, wire.CHUNK_BYTES))):
            left -= len(piece)
            yield piece
        yield bytes(left + -info.st_size % BLOCK)


def _header(
    path: bytes, kind: bytes, mode: int, *, size: int = 0, mtime: int = 0, target: bytes = b""
) -> bytes:
    """A ustar header, behind GNU long-name records where the name or the target needs them."""
    long = b""
    for record, text in ((_LONG_LINK, target), (_LONG_NAME, path)):
        if len(text) > 100:
            data = text + b"\0"
            long += _block(b"././@LongLink", record, 0, size=len(data)) + data + bytes(-len(data) % BLOCK)
    return long + _block(path, kind, mode, size=size, mtime=max(0, mtime), target=target)


def _block(
    path: bytes, kind: bytes, mode: int, *, size: int = 0, mtime: int = 0, target: bytes = b""
) -> bytes:
    if size >= 8**11:
        raise ValueError("a file of 8 GiB or more does not fit a snapshot")
    block = bytearray(BLOCK)
    block[0:100] = path[:100].ljust(100, b"\0")
    block[100:156] = b"%07o\0%07o\0%07o\0%011o\0%011o\0        " % (mode, 0, 0, size, mtime)
    block[156:157] = kind
    block[157:257] = target[:100].ljust(100, b"\0")
    block[257:265] = b"ustar  \0"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def restore(roots: Roots, body: wire.Body) -> None:
    """Replace the work tree. Raises ValueError for an entry we would not have written; it is empty then."""
    empty(roots.work, keep=PRIVATE)
    try:
        _unpack(roots, body)
    except BaseException:
        empty(roots.work, keep=PRIVATE)
        raise


def _unpack(roots: Roots, body: wire.Body) -> None:
    modes: list[tuple[bytes, int]] = []
    for count, (path, kind, header) in enumerate(_entries(body)):
        if count >= MAX_ENTRIES:
            raise ValueError(f"the snapshot holds more than {MAX_ENTRIES} entries")
        with _place(roots, path) as place:
            _make(place, kind, header, body)
        if kind == _FOLDER:
            modes.append((path, _number(header[100:108]) & 0o777))
    for path, mode in reversed(modes):
        _set_mode(roots, path, mode)


def _entries(body: wire.Body) -> Iterator[tuple[bytes, bytes, bytes]]:
    long: dict[bytes, bytes] = {}
    while True:
        header = body.read(BLOCK)
        _check_sum(header)
        if not any(header):
            return
        kind = header[156:157]
        if kind in {_LONG_NAME, _LONG_LINK}:
            long[kind] = _long_text(header, body)
            continue
        path = _checked_path(long.get(_LONG_NAME, header[0:100].partition(b"\0")[0]))
        if _LONG_LINK in long:
            header = header + long[_LONG_LINK]
        yield path, kind, header
        long.clear()


def _check_sum(header: bytes) -> None:
    if len(header) != BLOCK:
        raise ValueError("the snapshot ends too early")
    if any(header) and _number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
        raise ValueError("an entry of the snapshot has a wrong checksum")


def _number(field: bytes) -> int:
    """Octal digits only: what `int` also allows (signs, underscores, base-256) is refused."""
    digits = field.strip(b"\0 ")
    if digits.strip(b"01234567"):
        raise ValueError("an entry of the snapshot has a number that is none")
    return int(digits or b"0", 8)


def _long_text(header: bytes, body: wire.Body) -> bytes:
    size = _number(header[124:136])
    if size > MAX_NAME_BYTES:
        raise ValueError(f"a name of the snapshot is longer than {MAX_NAME_BYTES} bytes")
    return body.read(size + -size % BLOCK)[:size].rstrip(b"\0")


def _checked_path(path: bytes) -> bytes:
    parts = path.rstrip(b"/").split(b"/")
    if any(part in {b"", b".", b".."} for part in parts) or b"\0" in path:
        raise ValueError("a path of the snapshot leads out of the work tree")
    if parts[0] in PRIVATE:
        raise ValueError("the snapshot holds a path that is ours")
    return b"/".join(parts)


def _place(roots: Roots, path: bytes) -> Place:
    try:
        return roots.place(path, make_folders=True)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise ValueError("a path of the snapshot leads through a link or a file") from None
        raise


def _make(place: Place, kind: bytes, header: bytes, body: wire.Body) -> None:
    try:
        if kind == _FOLDER:
            os.mkdir(place.name, 0o700, dir_fd=place.parent)
        elif kind == _SYMLINK:
            target = header[BLOCK:] or header[157:257].partition(b"\0")[0]
            os.symlink(target, place.name, dir_fd=place.parent)
        elif kind == _REGULAR:
            _make_file(place, header, body)
        else:
            raise ValueError(f"the snapshot holds an entry of kind {kind!r}")
    except FileExistsError:
        raise ValueError("the snapshot holds a path twice") from None


def _make_file(place: Place, header: bytes, body: wire.Body) -> None:
    size, mtime = _number(header[124:136]), _number(header[136:148])
    fd = open_beneath(place.parent, place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        left = size
        while left:
            piece = body.read(min(left, wire.CHUNK_BYTES))
            if not piece:
                raise ValueError("the snapshot ends within a file")
            write_all(fd, piece)
            left -= len(piece)
        os.fchmod(fd, _number(header[100:108]) & 0o777)
        os.utime(fd, (mtime, mtime))
    finally:
        os.close(fd)
    body.read(-size % BLOCK)


def _set_mode(roots: Roots, path: bytes, mode: int) -> None:
    with roots.place(path) as place:
        fd = open_beneath(place.parent, place.name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
