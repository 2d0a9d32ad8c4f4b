"""A primary, its replica and three Sentinels on loopback: Debian's redis-server, five processes."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import redis

MASTER = "mymaster"
DOWN_AFTER_MS = 1_000
_START_SECONDS = 60.0
_QUORUM = 2


class NotInstalled(Exception):
    """One sentence that says what is missing."""


class Sentinels:
    """Raises NotInstalled where there is no redis-server.

    Args:
        folder: For data, configuration and logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binary = shutil.which("redis-server")
        if self._binary is None:
            raise NotInstalled("redis-server is not installed.")
        self.ports = _free_ports(5)
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """What a client is told."""
        return f"sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports[2:])}/{MASTER}"

    def start(self) -> None:
        """Returns when the replica follows and every Sentinel knows all the others."""
        primary, replica, *sentinels = self.ports
        self.start_server(primary)
        self.start_server(replica, "--replicaof", "127.0.0.1", str(primary))
        _until(lambda: self.admin(replica).info("replication").get("master_link_status") == "up")
        for port in sentinels:
            self._start_sentinel(port, primary)
        for port in sentinels:
            _until(lambda port=port: self._knows_all(port))

    def start_server(self, port: int, *options: str) -> None:
        """A server on its own folder; started again it has its data."""
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        base = ("--port", str(port), "--dir", str(folder), "--save", "", "--appendonly", "yes")
        self._spawn(port, *base, "--repl-diskless-sync-delay", "0", *options)
        _until(lambda: bool(self.admin(port).ping()))

    def admin(self, port: int) -> redis.Redis:
        return redis.Redis(port=port, decode_responses=True, socket_timeout=2)

    def master(self) -> int:
        """The port that a majority of the Sentinels names."""
        named = [self._asked(port) for port in self.ports[2:]]
        return max(set(named), key=named.count)

    def kill(self, port: int) -> None:
        """SIGKILL, as by the kernel."""
        process = self._running.pop(port)
        process.kill()
        process.wait()

    def cut_off_replica(self) -> None:
        """The primary goes on alone; what it is told from now on reaches nobody."""
        primary, replica, *_ = self.ports
        self._running[replica].send_signal(signal.SIGSTOP)
        self.admin(primary).execute_command("CLIENT", "KILL", "TYPE", "replica")

    def wake_replica(self) -> None:
        self._running[self.ports[1]].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for port in list(self._running):
            self.kill(port)

    def _asked(self, sentinel: int) -> int:
        answer = self.admin(sentinel).execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(answer[1])

    def _knows_all(self, sentinel: int) -> bool:
        known = self.admin(sentinel).execute_command("SENTINEL", "MASTER", MASTER)
        return (int(known["num-slaves"]), int(known["num-other-sentinels"])) == (1, 2)

    def _start_sentinel(self, port: int, primary: int) -> None:
        folder = self._folder / str(port)
        folder.mkdir()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\ndir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {primary} {_QUORUM}\n"
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {MASTER} 10000\n"
        )
        self._spawn(port, str(config), "--sentinel")
        _until(lambda: bool(self.admin(port).ping()))

    def _spawn(self, port: int, *arguments: str) -> None:
        with (self._folder / f"{port}.log").open("ab") as log:
            self._running[port] = subprocess.Popen([str(self._binary), *arguments], stdout=log, stderr=log)


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("Redis and its Sentinels did not come up.")
        time.sleep(0.05)
