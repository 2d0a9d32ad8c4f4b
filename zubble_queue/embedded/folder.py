"""The embedded server's folder: private, locked, and with a socket path that the kernel accepts."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from zubble_queue.errors import CannotStart

SOCKET_PATH_BYTES: Final = 107
"""What fits into sockaddr_un.sun_path with its final zero (unix(7))."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+")
"""Other characters would have to be quoted in the URL, and not every client unquotes them."""
_POLL_SECONDS: Final = 0.05


class Folder:
    """`<home>/embedded`, mode 0700."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.logs = path / "logs"
        self.socket = _socket_path(path)

    @property
    def has_data(self) -> bool:
        return self.data.is_dir()

    def prepare(self) -> None:
        """Make the folders, or make sure that the existing ones are ours alone.

        Raises:
            CannotStart: They belong to somebody else, or cannot be made; no space included.
        """
        for folder in (self.path, self.data, self.logs, self.socket.parent):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _own(folder)
            except OSError as refused:
                raise CannotStart(f"{folder} cannot be made or used: {refused.strerror}.") from refused

    def tidy(self) -> None:
        """Remove the socket's own folder, where it has one."""
        if self.socket.parent != self.path:
            with suppress(OSError):
                self.socket.parent.rmdir()

    @contextmanager
    def starting(self, timeout_seconds: float = 30.0) -> Iterator[None]:
        """Only one process at a time starts or stops the server."""
        with self._opened("start.lock") as handle:
            deadline = time.monotonic() + timeout_seconds
            while not try_lock(handle, exclusive=True):
                if time.monotonic() > deadline:
                    raise CannotStart(
                        f"Another process has been starting the server in {self.path} for long."
                    )
                time.sleep(_POLL_SECONDS)
            yield

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        handle = self.open_lock(name)
        try:
            yield handle
        finally:
            os.close(handle)

    def open_lock(self, name: str) -> int:
        """A handle for try_lock; the lock ends when it is closed, or its process ends, however it ends."""
        try:
            return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as refused:
            raise CannotStart(f"{self.path / name} cannot be opened: {refused.strerror}.") from refused


def try_lock(handle: int, *, exclusive: bool) -> bool:
    """Whether the lock was to be had at once."""
    import fcntl  # noqa: PLC0415  # not on Windows, from where one may submit to a Redis of one's own

    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as refused:
        if refused.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise
    return True


def _own(folder: Path) -> None:
    """Close the folder to others. Raises OSError when it is not ours, or not a folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _socket_path(folder: Path) -> Path:
    """In the folder; where that path is too long or needs quoting, in a private folder of the system's."""
    path = folder / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES and _PLAIN.fullmatch(str(path)):
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if _PLAIN.fullmatch(runtime) and len(runtime) < 60 else Path(tempfile.gettempdir())
    return base / f"zubble-{os.geteuid()}-{digest}" / "redis.sock"
