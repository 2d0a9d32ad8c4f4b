"""Named files in what `docker save` and OCI tools write, be it a folder or a tar of one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

from zubble_sandbox.images import beneath
from zubble_sandbox.images.entries import BadImage
from zubble_sandbox.images.streams import BROKEN, forget

MAX_DOCUMENT_BYTES: Final = 8 * 2**20
MAX_MEMBERS: Final = 100_000
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LINKS: Final = 8

OnRead = Callable[[int], object]


class Archive(Protocol):
    """Files by their relative path."""

    def open(self, name: str) -> IO[bytes]:
        """Raises BadImage when there is none."""

    def has(self, name: str) -> bool: ...


class FolderArchive:
    """A folder; no link in it is followed."""

    def __init__(self, folder: Path, on_read: OnRead) -> None:
        self._folder, self._on_read = folder, on_read

    def has(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        root = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = beneath.opened(root, os.fsencode(name), os.O_RDONLY | os.O_NONBLOCK, beneath.NO_LINKS)
        except OSError as error:
            raise BadImage(f"{self._folder / name} cannot be read: {error.strerror}.") from error
        finally:
            os.close(root)
        return cast("IO[bytes]", _Counted(os.fdopen(fd, "rb", buffering=0), self._on_read))


class TarArchive:
    """A tar that can be read at any place; what it holds is found once, from its headers.

    Raises BadImage for what is no tar.
    """

    def __init__(self, file: IO[bytes], what: str, on_read: OnRead) -> None:
        self._what, self._on_read = what, on_read
        self._tar, self._members = _listed(file, what)

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        member = self._members.get(posixpath.normpath(name))
        for _ in range(_LINKS):  # older versions of Docker save an equal layer as a link to the first
            if member is None or not member.issym():
                break
            beside = posixpath.join(posixpath.dirname(member.name), member.linkname)
            member = self._members.get(posixpath.normpath(beside))
        if member is None or not member.isreg():
            raise BadImage(f"{self._what} does not hold the file {name!r} that it names.")
        file = self._tar.extractfile(member)
        assert file is not None
        return cast("IO[bytes]", _Counted(cast("io.RawIOBase", file), self._on_read))


def _listed(file: IO[bytes], what: str) -> tuple[tarfile.TarFile, Mapping[str, tarfile.TarInfo]]:
    members: dict[str, tarfile.TarInfo] = {}
    try:
        tar = tarfile.TarFile(fileobj=cast("IO[bytes]", _Careful(file)), errors="surrogateescape")
        for _ in range(MAX_MEMBERS):  # one of a negative size would lead round for ever
            member = tar.next()
            if member is None:
                return tar, members
            forget(tar)
            members[posixpath.normpath(member.name)] = member
    except BROKEN as error:
        raise BadImage(f"{what} is not a whole tar archive: {error}.") from error
    raise BadImage(f"{what} holds more than {MAX_MEMBERS} files.")


class _Careful(io.RawIOBase):
    """A file of which `tarfile` is given no more at once than a header may hold."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_DOCUMENT_BYTES:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class _Counted(io.RawIOBase):
    """Tells how much of the source has been read."""

    def __init__(self, file: io.RawIOBase, on_read: OnRead) -> None:
        super().__init__()
        self._file, self._on_read = file, on_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer)) or b""
        buffer[: len(data)] = data
        self._on_read(len(data))
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def contents(archive: Archive, name: str) -> bytes:
    """A small file. Raises BadImage."""
    data = bytearray()
    with archive.open(name) as file:
        while len(data) <= MAX_DOCUMENT_BYTES and (piece := file.read(MAX_DOCUMENT_BYTES)):
            data += piece
    if len(data) > MAX_DOCUMENT_BYTES:
        raise BadImage(f"The image's {name} is larger than {MAX_DOCUMENT_BYTES} bytes.")
    return bytes(data)


def parsed(data: bytes, name: str) -> Any:
    """The JSON of a small file. Raises BadImage."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadImage(f"The image's {name} is not JSON: {error}.") from error


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(text: str) -> bool:
    """Whether it is one of the kind that is known here."""
    return _DIGEST.fullmatch(text) is not None


def blob(archive: Archive, digest: str) -> Any:
    """A JSON blob of an OCI layout, which must be what its digest says. Raises BadImage."""
    data = contents(archive, blob_name(digest))
    if digest_of(data) != digest:
        raise BadImage(f"The image's blob {digest} is not what its digest says.")
    return parsed(data, digest)


def blob_name(digest: str) -> str:
    """Where an OCI layout keeps a blob."""
    return "blobs/" + digest.replace(":", "/")
