"""Opening what lies below a folder and nothing else, by the kernel's own rules."""

from __future__ import annotations

import ctypes
import os
from typing import Final

IN_ROOT: Final = 0x10
"""Links are followed as if the folder were the root."""
NO_LINKS: Final = 0x08 | 0x04
"""None is followed, and nothing above is reached."""
_NO_MAGICLINKS: Final = 0x02
_SYS_OPENAT2: Final = 437
"""On every architecture."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc: Final = ctypes.CDLL(None, use_errno=True)


def opened(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """A descriptor. Raises OSError as `openat2` does: ELOOP for a link, EXDEV for what leads out."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve | _NO_MAGICLINKS)
    fd: int = _libc.syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(folder),
        ctypes.c_char_p(path or b"."),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def names(folder: int) -> list[bytes]:
    """What is in an open folder, sorted; a descriptor of a path will do."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(fd) as entries:
            return sorted(os.fsencode(entry.name) for entry in entries)
    finally:
        os.close(fd)
