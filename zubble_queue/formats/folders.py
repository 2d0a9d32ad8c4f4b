"""Reading a folder that somebody else made: plain files only, no link followed, nothing without bounds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DEPTH: Final = 32
_IGNORED: Final = frozenset({"__pycache__", ".DS_Store", ".git"})


class Unfit(Exception):
    """A file or folder cannot be used; the message is half a sentence behind its name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}.")


@dataclass(frozen=True, slots=True)
class Found:
    """A file below a folder."""

    path: str
    """Relative, with slashes."""
    data: bytes
    executable: bool


def is_there(folder: Path, name: str) -> bool:
    """Whether there is anything of that name."""
    return os.path.lexists(folder / name)


def read_file(folder: Path, name: str, *, max_bytes: int) -> Found:
    """A plain file. Raises Unfit for anything else, a link to one included: it could lead anywhere."""
    path = folder / name
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Unfit(name, "is missing") from None
    except OSError as error:
        reason = (
            "is a link, which is not followed" if path.is_symlink() else f"cannot be read: {error.strerror}"
        )
        raise Unfit(name, reason) from error
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Unfit(name, "is not a plain file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise Unfit(name, f"is larger than {max_bytes:,} bytes")
    return Found(name, data, bool(info.st_mode & stat.S_IXUSR))


def read_text(folder: Path, name: str, *, max_bytes: int) -> str:
    """A text in UTF-8. Raises Unfit."""
    try:
        return read_file(folder, name, max_bytes=max_bytes).data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unfit(name, "is not UTF-8") from None


def read_all(folder: Path, name: str, *, max_bytes: int) -> Iterator[Found]:
    """All files below a sub-folder, by path relative to it, sorted; at most so many bytes together.

    Raises:
        Unfit: One of them is not a plain file, or they are too large or too deep.
    """
    room = max_bytes
    for path in _names(folder, name, _DEPTH):
        try:
            found = read_file(folder, path, max_bytes=room)
        except Unfit as unfit:
            if room < max_bytes and "larger" in str(unfit):
                raise Unfit(name, f"holds more than {max_bytes:,} bytes") from unfit
            raise
        room -= len(found.data)
        yield Found(path.removeprefix(f"{name}/"), found.data, found.executable)


def _is_text(name: str) -> bool:
    """Whether a name is more than bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(folder: Path, name: str, depth: int) -> Iterator[str]:
    if not depth:
        raise Unfit(name, f"lies more than {_DEPTH} folders deep")
    if (folder / name).is_symlink():
        raise Unfit(name, "is a link, which is not followed")
    try:
        entries = sorted((folder / name).iterdir())
    except FileNotFoundError:
        raise Unfit(name, "is missing") from None
    except OSError as error:
        raise Unfit(name, f"cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.name in _IGNORED or entry.name.endswith(".pyc"):
            continue
        below = f"{name}/{entry.name}"
        if not _is_text(entry.name):
            raise Unfit(
                os.fsencode(below).decode("utf-8", "backslashreplace"), "has a name that is not UTF-8"
            )
        if entry.is_dir() and not entry.is_symlink():
            yield from _names(folder, below, depth - 1)
        else:
            yield below
