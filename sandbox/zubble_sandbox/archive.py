"""What a supervisor tells of a tree, and the tar of a snapshot: pure, and all of it the bytes of an enemy.

A record is three fields: path, "kind mode size mtime-ns" and, of a link, its target. In a snapshot the
content of a file follows its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from zubble_sandbox import wire

BLOCK: Final = 512
MAX_ENTRIES: Final = 200_000
MAX_NAME_BYTES: Final = 65_536
PRIVATE: Final = b".zubble"
"""Ours, at the top of the work tree: part of neither fingerprint nor snapshot."""
_LONG_LINK, _LONG_NAME, _REGULAR, _SYMLINK, _FOLDER = b"K", b"L", b"0", b"2", b"5"
_KINDS: Final = {b"f": "file", b"d": "directory", b"l": "symlink", b"o": "other"}
_NANOSECONDS: Final = 1_000_000_000
_LAST_SECOND: Final = 8**11 - 1
"""Of a time in a tar."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing in a tree."""

    path: bytes
    """Relative, to the listed folder."""
    kind: bytes
    """f, d, l or o: file, directory, symlink, other."""
    mode: int
    """Permission bits, with setuid, setgid and sticky."""
    size: int
    """Of a directory 0, like its time: they say nothing about the tree."""
    mtime_ns: int
    target: bytes
    """Of a symlink."""

    @property
    def kind_name(self) -> str:
        return _KINDS[self.kind]


def records(listing: bytes | bytearray) -> list[Record]:
    """Every entry, each folder before what is in it. Raises ValueError for what is no listing."""
    found: list[Record] = []
    position = 0
    while position < len(listing):
        record, position = _record_at(listing, position)
        found.append(record)
    return found


def _record_at(data: wire.Buffer, position: int) -> tuple[Record, int]:
    path, position = wire.field_at(data, position)
    text, position = wire.field_at(data, position)
    target, position = wire.field_at(data, position)
    kind, mode, size, mtime = bytes(text).split(b" ")
    if kind not in _KINDS:
        raise ValueError(f"an entry is of kind {kind!r}")
    return Record(bytes(path), kind, int(mode, 8), int(size), int(mtime), bytes(target)), position


def tar(saved: bytes | bytearray, max_bytes: int) -> bytes:
    """The tar of a snapshot, the same for the same tree.

    Raises ValueError when it would be larger than max_bytes, or for what no supervisor of ours sends.
    """
    data = memoryview(saved)
    pieces: list[wire.Buffer] = []
    size = position = 0
    while position < len(data):
        record, position = _record_at(data, position)
        content = data[position : position + (record.size if record.kind == b"f" else 0)]
        position += len(content)
        for piece in (_header(record), content, bytes(-len(content) % BLOCK)):
            size += len(piece)
            pieces.append(piece)
    if size + 2 * BLOCK > max_bytes:
        raise ValueError(f"the work tree is larger than {max_bytes} bytes")
    return b"".join((*pieces, bytes(2 * BLOCK)))


def _header(record: Record) -> bytes:
    """A ustar header, behind GNU long-name records where the name or the target needs them."""
    kind, mode = {b"f": _REGULAR, b"d": _FOLDER, b"l": _SYMLINK}[record.kind], record.mode & 0o777
    size, mtime = (record.size, record.mtime_ns // _NANOSECONDS) if kind == _REGULAR else (0, 0)
    mtime = min(max(0, mtime), _LAST_SECOND)
    long = b""
    for type_, text in ((_LONG_LINK, record.target), (_LONG_NAME, record.path)):
        if len(text) > 100:
            data = text + b"\0"
            long += _block(b"././@LongLink", type_, 0, size=len(data)) + data + bytes(-len(data) % BLOCK)
    return long + _block(record.path, kind, mode, size=size, mtime=mtime, target=record.target)


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


def checked(snapshot: bytes) -> list[wire.Buffer]:
    """The body of a RESTORE. Raises ValueError for an entry that `tar` would not have written."""
    body: list[wire.Buffer] = []
    folders: list[Record] = []
    for record, content in members(snapshot):
        body += (_packed(record), content)
        if record.kind == b"d":
            folders.append(record)
    # Inside out, and only now: a folder may be one that nothing can be put into.
    body += (_packed(folder, kind=b"m") for folder in reversed(folders))
    return body


def members(snapshot: bytes) -> Iterator[tuple[Record, memoryview]]:
    """Its entries with their content. Raises ValueError for one that `tar` would not have written."""
    paths: dict[bytes, bool] = {}
    """To whether it is a folder."""
    for record, content in _members(memoryview(snapshot)):
        if len(paths) >= MAX_ENTRIES:
            raise ValueError(f"the snapshot holds more than {MAX_ENTRIES} entries")
        _check_path(record.path, paths)
        paths[record.path] = record.kind == b"d"
        yield record, content


def _packed(record: Record, kind: bytes | None = None) -> bytes:
    text = b"%s %o %d %d" % (kind or record.kind, record.mode, record.size, record.mtime_ns)
    return wire.pack(record.path, text, record.target)


def _check_path(path: bytes, known: dict[bytes, bool]) -> None:
    parts = path.split(b"/")
    if any(part in {b"", b".", b".."} for part in parts) or b"\0" in path:
        raise ValueError("a path of the snapshot leads out of the work tree")
    if parts[0] == PRIVATE:
        raise ValueError("the snapshot holds a path that is ours")
    if path in known:
        raise ValueError("the snapshot holds a path twice")
    for end in range(1, len(parts)):
        parent = b"/".join(parts[:end])
        if not known.setdefault(parent, True):
            raise ValueError("a path of the snapshot leads through a link or a file")


def _members(data: memoryview) -> Iterator[tuple[Record, memoryview]]:
    long: dict[bytes, bytes] = {}
    position = 0
    while True:
        header = bytes(data[position : position + BLOCK])
        _check_sum(header)
        position += BLOCK
        if not any(header):
            return
        kind, size = header[156:157], _number(header[124:136])
        content = data[position : position + size]
        if kind in {_LONG_NAME, _LONG_LINK}:
            long[kind] = _long_text(content, size)
        elif kind in {_REGULAR, _SYMLINK, _FOLDER}:
            record = _member(header, kind, long)
            content = content[: record.size]
            size = record.size
            if len(content) < size:
                raise ValueError("the snapshot ends within a file")
            yield record, content
            long.clear()
        else:
            raise ValueError(f"the snapshot holds an entry of kind {kind!r}")
        position += size + -size % BLOCK


def _member(header: bytes, kind: bytes, long: dict[bytes, bytes]) -> Record:
    path = long.get(_LONG_NAME, header[0:100].partition(b"\0")[0]).rstrip(b"/")
    target = long.get(_LONG_LINK, header[157:257].partition(b"\0")[0])
    regular = kind == _REGULAR
    return Record(
        path=path,
        kind={_REGULAR: b"f", _SYMLINK: b"l", _FOLDER: b"d"}[kind],
        mode=_number(header[100:108]) & 0o777,
        size=_number(header[124:136]) if regular else 0,
        mtime_ns=_number(header[136:148]) * _NANOSECONDS if regular else 0,
        target=target if kind == _SYMLINK else b"",
    )


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


def _long_text(content: memoryview, size: int) -> bytes:
    if size > MAX_NAME_BYTES:
        raise ValueError(f"a name of the snapshot is longer than {MAX_NAME_BYTES} bytes")
    if len(content) < size:
        raise ValueError("the snapshot ends too early")
    return bytes(content).rstrip(b"\0")
