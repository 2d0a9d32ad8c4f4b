"""Content-addressed blobs over fsspec: a folder, S3, GCS.

A blob's name is its SHA-256, so writing twice changes nothing, and what comes back is checked against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from zubble_queue.contracts.envelope import BlobRef
from zubble_queue.errors import CannotStart, InfraError

_SCHEME: Final = "sha256:"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def reference(data: bytes) -> str:
    """`sha256:<64 hex>`."""
    return _SCHEME + hashlib.sha256(data).hexdigest()


class ArtifactStore:
    """Blobs below one URL, each at `sha256/<2 hex>/<62 hex>`.

    A local folder is made for its owner alone (0700), and files appear in it whole or not at all.

    Args:
        url: A folder or an fsspec URL; other file systems need their fsspec package (`s3fs`, `gcsfs`).

    Raises:
        CannotStart: The URL's file system is not installed, or the folder cannot be made.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as unusable:
            raise CannotStart(f"Artifacts cannot be kept at {url!r}: {unusable}.") from unusable
        self._local = isinstance(self._files, LocalFileSystem)
        if self._local:
            _make_folder(Path(self._root))

    def put(self, data: bytes, *, executable: bool = False) -> BlobRef:
        """Keep a blob, unless it is there; what a crash left half written is written again.

        Raises:
            InfraError: One sentence: no space left, or the place does not answer.
        """
        blob = BlobRef(ref=reference(data), size=len(data), executable=executable)
        self._write({self._path(blob.ref): data})
        return blob

    def put_all(self, blobs: Iterable[bytes]) -> None:
        """Keep many blobs, which is quicker together. Raises what `put` does."""
        self._write({self._path(reference(data)): data for data in blobs})

    def get(self, blob: BlobRef | str) -> bytes:
        """The content.

        Raises:
            InfraError: It is not there, is not what its name says, or the place does not answer.
        """
        ref = _ref(blob)
        try:
            data: bytes = self._files.cat_file(self._path(ref))
        except FileNotFoundError as missing:
            raise InfraError(f"Artifact {ref} is not in {self.url}.") from missing
        except OSError as failed:
            raise self._failure(failed) from failed
        if reference(data) != ref:
            raise InfraError(f"Artifact {ref} in {self.url} is damaged: its content has another digest.")
        return data

    def has(self, blob: BlobRef | str) -> bool:
        """Whether it is there. Raises InfraError when the place does not answer."""
        return self._size(self._path(_ref(blob))) is not None

    async def aput(self, data: bytes, *, executable: bool = False) -> BlobRef:
        """`put` in a thread."""
        return await asyncio.to_thread(self.put, data, executable=executable)

    async def aput_all(self, blobs: Iterable[bytes]) -> None:
        """`put_all` in a thread."""
        await asyncio.to_thread(self.put_all, blobs)

    async def aget(self, blob: BlobRef | str) -> bytes:
        """`get` in a thread."""
        return await asyncio.to_thread(self.get, blob)

    async def ahas(self, blob: BlobRef | str) -> bool:
        """`has` in a thread."""
        return await asyncio.to_thread(self.has, blob)

    def _path(self, ref: str) -> str:
        digest = ref.removeprefix(_SCHEME)
        return f"{self._root}/sha256/{digest[:2]}/{digest[2:]}"

    def _size(self, path: str) -> int | None:
        try:
            return Path(path).stat().st_size if self._local else int(self._files.info(path)["size"])
        except FileNotFoundError:
            return None
        except OSError as failed:
            raise self._failure(failed) from failed

    def _write(self, contents: Mapping[str, bytes]) -> None:
        missing = {path: data for path, data in contents.items() if self._size(path) != len(data)}
        try:
            if self._local:
                _write_whole({Path(path): data for path, data in missing.items()})
            else:
                for path, data in missing.items():
                    self._files.pipe_file(path, data)
        except OSError as failed:
            raise self._failure(failed) from failed

    def _failure(self, failed: OSError) -> InfraError:
        if failed.errno in _NO_SPACE:
            return InfraError(f"No space left for artifacts in {self.url}.")
        return InfraError(f"Artifacts in {self.url} cannot be reached: {failed.strerror or failed}.")


def _ref(blob: BlobRef | str) -> str:
    """Raises pydantic's ValidationError, a ValueError, for a string that is no reference."""
    return blob.ref if isinstance(blob, BlobRef) else BlobRef(ref=blob, size=0).ref


def _make_folder(root: Path) -> None:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    except OSError as failed:
        raise CannotStart(f"The artifact folder {root} cannot be made: {failed.strerror}.") from failed


def _write_whole(contents: Mapping[Path, bytes]) -> None:
    """All on the disk before any has its name: the first file's sync makes those of the others cheap."""
    drafts = {path.with_name(f".{path.name}.{secrets.token_hex(4)}"): path for path in contents}
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(_created(draft)) for draft in drafts]
            for file, data in zip(files, contents.values(), strict=True):
                file.write(data)
                file.flush()
            for file in files:
                os.fsync(file.fileno())
        for draft, path in drafts.items():
            draft.replace(path)
    except BaseException:
        for draft in drafts:
            draft.unlink(missing_ok=True)
        raise


def _created(path: Path) -> BinaryIO:
    """A new file, its folder made where it is the first one there."""
    try:
        return path.open("xb")
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("xb")
