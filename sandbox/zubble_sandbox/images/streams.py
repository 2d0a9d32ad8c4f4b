"""Reading what somebody else wrote, forwards only and never more than is allowed."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final, cast

from zubble_sandbox.images.entries import BadImage, Entry, Kind, nothing, parts_of

CHUNK_BYTES: Final = 262_144
MAX_READ_BYTES: Final = 1_048_576
"""Of one header with everything that belongs to it."""
BROKEN: Final = (
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    IndexError,
    OverflowError,
    RecursionError,
    gzip.BadGzipFile,
)
"""What the standard library raises for bytes that are no archive."""
_GZIP, _XZ, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"BZh", b"\x28\xb5\x2f\xfd"
_MAGIC_BYTES: Final = 6
_KINDS: Final[dict[bytes, Kind]] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.GNUTYPE_SPARSE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
}


class Forward(io.RawIOBase):
    """A stream that knows where it is, goes forwards only, hashes what passes, and ends at a limit.

    `tarfile` reads through it; what would make it read a header of gigabytes or go back for ever is refused.

    Args:
        source: What to read.
        limit: The most bytes it may bring.
        on_read: Told how many bytes came.
    """

    def __init__(
        self, source: IO[bytes], *, limit: int, on_read: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__()
        self._source, self._limit, self._on_read = source, limit, on_read
        self._position = 0
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Of all that was read so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Exactly so many bytes, fewer only at the end. Raises ValueError for too many at once."""
        if not 0 <= size <= MAX_READ_BYTES:
            raise ValueError(f"a header of {size} bytes")
        pieces = bytearray()
        while len(pieces) < size and (piece := self._source.read(size - len(pieces))):
            pieces += piece
        self._position += len(pieces)
        if self._position > self._limit:
            raise BadImage(f"The image is larger than {self._limit} bytes when it is unpacked.")
        self._hash.update(pieces)
        self._on_read(len(pieces))
        return bytes(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on up to there. Raises ValueError when that is behind us."""
        if whence != io.SEEK_SET or offset < self._position:
            raise ValueError("an entry that leads back")
        while self._position < offset and self.read(min(CHUNK_BYTES, offset - self._position)):
            pass
        return self._position

    def drain(self) -> None:
        """Read up to the end, for the digest."""
        while self.read(CHUNK_BYTES):
            pass


def decompressed(source: IO[bytes], what: str) -> IO[bytes]:
    """What is inside, by its first bytes. Raises BadImage for a compression that is not known here."""
    peekable = io.BufferedReader(cast("io.RawIOBase", source), CHUNK_BYTES)
    magic = peekable.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    if magic.startswith(_GZIP):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=peekable))
    if magic.startswith(_XZ):
        return lzma.LZMAFile(peekable)
    if magic.startswith(_BZIP2):
        return cast("IO[bytes]", bz2.BZ2File(peekable))
    if magic.startswith(_ZSTD):
        raise BadImage(f"{what} is compressed with zstd: save the image with gzip or without compression.")
    return cast("IO[bytes]", peekable)


def tar_entries(stream: Forward, what: str) -> Iterator[Entry]:
    """Everything in a tar, to its end. Raises BadImage for what is no tar or breaks a rule."""
    try:
        with tarfile.TarFile(fileobj=cast("IO[bytes]", stream), errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                forget(tar)
                yield _entry(tar, member)
        stream.drain()
    except BadImage:
        raise
    except BROKEN as error:
        raise BadImage(f"{what} is not a whole tar archive: {error}.") from error


def forget(tar: tarfile.TarFile) -> None:
    """It would remember every member, for what is not done here."""
    tar.members.clear()  # type: ignore[attr-defined]


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = _KINDS.get(member.type, "other")
    return Entry(
        parts=parts_of(_encoded(member.name)),
        kind=kind,
        mode=member.mode,
        mtime=int(member.mtime),
        size=member.size if kind == "file" else 0,
        target=_encoded(member.linkname),
        pieces=(lambda: _pieces(tar, member)) if kind == "file" else nothing,
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _pieces(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = tar.extractfile(member)
    assert file is not None
    while piece := file.read(CHUNK_BYTES):
        yield piece
