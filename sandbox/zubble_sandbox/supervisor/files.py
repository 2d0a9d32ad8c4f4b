"""Reading, writing, listing and fingerprinting for the worker, inside the sandbox's own rights."""

from __future__ import annotations

import errno
import os
import stat

from zubble_sandbox.supervisor import wire
from zubble_sandbox.supervisor.tree import MAX_ENTRIES, Place, Roots, open_beneath, open_regular, walk

PRIVATE = frozenset({b".zubble"})
"""Ours, at the top of the work tree: part of neither fingerprint nor snapshot."""


def read(roots: Roots, path: bytes, max_bytes: int) -> bytes:
    """Raises OSError, and ValueError when there is more than max_bytes (by bytes read, not by size)."""
    with roots.place(path) as place:
        fd, _ = open_regular(place.parent, place.name)
    with os.fdopen(fd, "rb", buffering=0) as file:
        data = bytearray()
        while len(data) <= max_bytes and (
            piece := file.read(min(wire.CHUNK_BYTES, max_bytes + 1 - len(data)))
        ):
            data += piece
    if len(data) > max_bytes:
        raise ValueError(f"the file is larger than {max_bytes} bytes")
    return bytes(data)


def write(roots: Roots, path: bytes, body: wire.Body, *, executable: bool) -> None:
    """Through a new file beside the old one, so that a full disk leaves the old one as it was."""
    if path.startswith(b"/") and path.lstrip(b"/").split(b"/")[0] != b"work":
        raise OSError(errno.EACCES, "only the work tree can be written")
    with roots.place(path, make_folders=True) as place:
        _refuse_special(place)
        temporary = b".zubble-new-" + os.urandom(8).hex().encode()
        fd = open_beneath(place.parent, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(fd, "wb", buffering=0) as file:
                while piece := body.read(wire.CHUNK_BYTES):
                    write_all(fd, piece)
                os.fchmod(file.fileno(), 0o755 if executable else 0o644)
            os.rename(temporary, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
        except BaseException:
            os.unlink(temporary, dir_fd=place.parent)
            raise


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _refuse_special(place: Place) -> None:
    try:
        mode = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "a symbolic link is not followed")
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file")


def listing(roots: Roots, path: bytes, limit: int) -> list[bytes]:
    """Four fields an entry: path, kind, size, mode."""
    folder = roots.open_folder(path)
    try:
        fields: list[bytes] = []
        for entry in walk(folder):
            if len(fields) >= 4 * limit:
                break
            size, mode = entry.info.st_size, stat.S_IMODE(entry.info.st_mode)
            fields += (entry.path, entry.kind, b"%d" % size, b"%d" % mode)
        return fields
    finally:
        os.close(folder)


def fingerprint(roots: Roots) -> bytes:
    """Of paths, kinds, sizes, modes and, except for folders, times of the first MAX_ENTRIES entries."""
    import hashlib  # noqa: PLC0415 - 3 ms that most sandboxes need only after their first step

    digest = hashlib.sha256()
    for count, entry in enumerate(walk(roots.work, skip=PRIVATE)):
        if count >= MAX_ENTRIES:
            break
        info = entry.info
        changed = (0, 0) if stat.S_ISDIR(info.st_mode) else (info.st_size, info.st_mtime_ns)
        digest.update(b"%s\0%o %d %d\n" % (entry.path, info.st_mode, *changed))
    return digest.hexdigest().encode()
