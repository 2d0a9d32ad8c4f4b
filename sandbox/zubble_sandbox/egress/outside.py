"""The world outside, as the proxy sees it: names are resolved and addresses are dialled, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, Protocol

RESOLVERS: Final = 8
"""Threads of a process that look names up; a slow name server holds up allow-lists only, not the worker."""
BUFFER_BYTES: Final = 65_536


class Outside(Protocol):
    """Both raise OSError; both are cancelled when they take too long."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name, the best first, as texts. Nothing is judged here."""

    async def dial(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address, which is never looked up again."""


class System:
    """The resolver and the network of this machine."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(_threads(), _look_up, host, port)
        return list(dict.fromkeys(found))

    async def dial(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address, port, limit=BUFFER_BYTES, flags=socket.AI_NUMERICHOST)


def _look_up(host: str, port: int) -> list[str]:
    """The dot at the end makes the name absolute: no search domain of this machine is put behind it."""
    found = socket.getaddrinfo(f"{host}.", port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in found]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="zubble-resolver")
