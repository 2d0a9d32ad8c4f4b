"""Removing a folder of ours whatever a command made of it."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(folder: str | None) -> bool:
    """Remove it with everything in it; True when there was one. Raises OSError."""
    if folder is None:
        return False
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        _empty(fd)
    finally:
        os.close(fd)
    Path(folder).rmdir()
    return True


def _empty(folder: int) -> None:
    """Remove everything in a folder that nobody else writes to, however deep and whatever its modes.

    Sub-folders are moved up to the top before they are emptied, so depth costs neither descriptors nor stack.
    """
    aside, counter = b".zubble-" + secrets.token_hex(8).encode(), 0
    while names := _names(folder):
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
        link = f"/proc/self/fd/{handle}"
        Path(link).chmod(0o700)
        return os.open(link, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
