"""The seam to Redis: one pool, one place where its exceptions become ours, one check of what it is."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff

from zubble_queue.errors import CannotStart, StoreUnavailable
from zubble_queue.stores import scripts
from zubble_queue.stores.address import Address, place, read
from zubble_queue.stores.keys import Keys

MAX_CONNECTIONS: Final = 32
"""Per process; a command holds one for its own time only, so hundreds of agents share them."""
ANSWER_SECONDS: Final = 5.0
"""A command that takes longer, with its waiting for a connection, has failed; well below what a lease may go
without renewal. It is kept here and not by redis-py, whose own timeouts lose cancellations on Python 3.11."""
FULL_SHARE: Final = 0.8
"""Above this share of maxmemory nothing big is written, so that leases, seals and settlements still fit."""
_FULL_CHECK_SECONDS: Final = 1.0
_OLDEST_REDIS: Final = (7, 0)
_OLDEST_VALKEY: Final = (7, 2)
_CONNECTION_ERRORS: Final = (
    TimeoutError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.MasterDownError,
)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What the scripts need to know; the same in every process of an installation."""

    lease_seconds: float
    max_attempts: int
    record_ttl_seconds: int

    def arguments(self) -> tuple[int, int, int]:
        return (self.record_ttl_seconds, micro(self.lease_seconds), self.max_attempts)


def micro(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1_000_000)


class Connection:
    """Runs commands and scripts; raises StoreUnavailable when Redis does not answer or is full."""

    def __init__(self, client: Redis, keys: Keys, options: StoreOptions, where: str) -> None:
        self._client: Any = client
        self._keys = keys
        self._options = options
        self._where = where
        self._scripts = {name: client.register_script(text) for name, text in scripts.sources()}
        self._full_checked = -_FULL_CHECK_SECONDS
        self._full = False

    async def aclose(self) -> None:
        await _close(self._client)

    async def _do(self, *command: str | float, blocking_seconds: float = 0.0) -> Any:
        with self._seam():
            async with asyncio.timeout(blocking_seconds + ANSWER_SECONDS):
                return await self._client.execute_command(*command)

    async def _pipe(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """Many commands in one round trip; not a transaction."""
        if not commands:
            return []
        with self._seam():
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            async with asyncio.timeout(ANSWER_SECONDS):
                answers: list[Any] = await pipeline.execute()
            return answers

    async def _run(self, script: str, *arguments: str | int) -> Any:
        keys, values = [self._keys.prefix], [*self._options.arguments(), *arguments]
        with self._seam():
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._scripts[script](keys=keys, args=values)

    async def nearly_full(self) -> bool:
        """Whether more than 80 % of maxmemory is used; asks at most once a second."""
        now = time.monotonic()
        if now - self._full_checked >= _FULL_CHECK_SECONDS:
            self._full = used_share(await self._do("INFO", "memory")) > FULL_SHARE
            self._full_checked = now
        return self._full

    async def _refuse_when_full(self) -> None:
        """Raises StoreUnavailable when Redis is nearly full."""
        if await self.nearly_full():
            raise StoreUnavailable(
                f"Redis at {self._where} is more than {FULL_SHARE:.0%} full: "
                "raise maxmemory or wait until records expire."
            )

    @contextmanager
    def _seam(self) -> Iterator[None]:
        try:
            yield
        except _CONNECTION_ERRORS as lost:
            raise StoreUnavailable(_silence(self._where, lost)) from lost
        except exceptions.OutOfMemoryError as full:
            raise StoreUnavailable(f"Redis at {self._where} is full: raise maxmemory.") from full
        except exceptions.ReadOnlyError as replica:
            raise StoreUnavailable(f"Redis at {self._where} is a read-only replica.") from replica


async def open_client(url: str) -> Redis:
    """A client for a server that is fit for us.

    Raises:
        CannotStart: One sentence: the URL is unusable, or the server is unreachable, too old, a cluster, a
            replica, or may evict what it holds.
    """
    client = _client(read(url))
    try:
        await _check(client, place(url))
    except BaseException:
        await _close(client)
        raise
    return client


def used_share(memory: dict[str, Any]) -> float:
    """Used part of maxmemory; 0 where it is unlimited."""
    limit = int(memory.get("maxmemory", 0))
    return int(memory["used_memory"]) / limit if limit else 0.0


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Waits for a connection like the other pool, to whichever server is the master now."""


def _client(address: Address) -> Redis:
    options: dict[str, Any] = {
        "max_connections": MAX_CONNECTIONS,
        "timeout": None,
        "socket_timeout": None,
        "socket_connect_timeout": ANSWER_SECONDS,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), retries=1),
        "decode_responses": True,
        "protocol": 2,
        "client_name": "zubble",
    }
    if not address.sentinels:
        return Redis(
            connection_pool=BlockingConnectionPool.from_url(address.url, **options, **address.tls or {})
        )
    secure = {"ssl": True, **address.tls} if address.tls is not None else {}
    pool = _SentinelPool(  # type: ignore[no-untyped-call]
        address.master,
        _sentinel(address),
        db=address.db,
        username=address.username,
        password=address.password,
        **options,
        **secure,
    )
    return Redis(connection_pool=pool)


def _sentinel(address: Address) -> Sentinel:
    """One that hangs must leave time for the next."""
    each = ANSWER_SECONDS / (2 * len(address.sentinels))
    patience = {"socket_timeout": each, "socket_connect_timeout": each}
    return Sentinel(  # type: ignore[no-untyped-call]
        address.sentinels, sentinel_kwargs={**patience, **address.sentinel_options}
    )


async def _close(client: Redis) -> None:
    """The client, its connections, and those to the Sentinels."""
    pool = client.connection_pool
    await client.aclose()
    await pool.disconnect()
    if isinstance(pool, _SentinelPool):
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


async def _check(client: Redis, where: str) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            info = await client.info()
    except _CONNECTION_ERRORS as lost:
        raise CannotStart(_silence(where, lost)) from lost
    except exceptions.NoPermissionError as denied:
        raise CannotStart(f"Redis at {where} does not allow this user INFO: {_short(denied)}.") from denied
    except exceptions.RedisError as refused:
        raise CannotStart(f"Redis at {where} cannot be used: {_short(refused)}.") from refused
    if problem := unfit(info):
        raise CannotStart(f"Redis at {where} {problem}.")


def unfit(info: dict[str, Any]) -> str | None:
    """Why a server cannot be used, as the rest of a sentence; None if it can."""
    if info.get("cluster_enabled") or info.get("redis_mode") == "cluster":
        return "is a cluster; a standalone server is needed"
    if too_old := _too_old(info):
        return too_old
    if info.get("role") == "slave":
        return "is a read-only replica; name its primary"
    evicting = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and evicting != "noeviction":
        return f"may evict tasks (maxmemory-policy {evicting}); set it to noeviction"
    return None


def _too_old(info: dict[str, Any]) -> str | None:
    valkey = info.get("valkey_version")
    name, found, oldest = (
        ("Valkey", str(valkey), _OLDEST_VALKEY)
        if valkey
        else ("Redis", str(info.get("redis_version", "0")), _OLDEST_REDIS)
    )
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < oldest:
        return f"is {name} {found}; {'.'.join(map(str, oldest))} or newer is needed"
    return None


def _silence(where: str, lost: Exception) -> str:
    """redis-py wraps a refused password into a connection error."""
    if any(isinstance(error, exceptions.AuthenticationError) for error in (lost, lost.__cause__)):
        return f"Redis at {where} refused the user or password."
    if isinstance(lost, TimeoutError):
        return f"Redis at {where} did not answer within {ANSWER_SECONDS:g} seconds."
    return f"Redis at {where} does not answer: {_short(lost)}."


def _short(cause: BaseException) -> str:
    """The first line of a foreign exception, without a full stop."""
    return (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
