"""A connection for each open call, used again by a later one.

One httpx client for hundreds of streams does not do: its pool looks at every connection for every request and
for every connection again while it does, which took 40 s of CPU for the second 500 calls at once. Here each
open call has a client, and therefore a pool, of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx

from zubble_worker.models.failure import TryFailed

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from zubble_queue.contracts.model_config import ModelConfig

_IDLE_LANES: Final = 64
"""Clients, each with an open connection, that wait for a call."""
_LIMITS: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=30)


class Lanes:
    """Clients for one endpoint, made as they are needed."""

    def __init__(self, config: ModelConfig) -> None:
        self._trust_env = not config.is_loopback
        # Reading the certificates takes a while, and redirects are not followed: plain http never needs them.
        is_plain = (config.base_url or "").startswith("http://")
        self._verify: ssl.SSLContext | bool = False if is_plain else httpx.create_ssl_context()
        self._idle: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that nobody else uses meanwhile.

        One whose call was cancelled or whose connection failed is not used again: httpx may never give its
        only connection back, and the next call would wait for that until its deadline.
        """
        lane = self._idle.pop() if self._idle else self._make()
        try:
            yield lane
        except TryFailed:  # the endpoint has answered
            await self._keep(lane)
            raise
        except BaseException:
            await asyncio.shield(lane.aclose())
            raise
        await self._keep(lane)

    async def _keep(self, lane: httpx.AsyncClient) -> None:
        if len(self._idle) < _IDLE_LANES:
            self._idle.append(lane)
        else:
            await lane.aclose()

    async def aclose(self) -> None:
        """Close the clients that wait; those in use are closed when they come back."""
        idle, self._idle = self._idle, []
        for lane in idle:
            await lane.aclose()

    def _make(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(limits=_LIMITS, trust_env=self._trust_env, verify=self._verify)
