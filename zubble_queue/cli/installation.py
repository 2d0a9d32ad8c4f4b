"""Reaching an installation: the Redis the settings name, or the embedded server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from zubble_queue.errors import CannotStart
from zubble_queue.stores.redis import RedisStore

if TYPE_CHECKING:
    from zubble_queue.artifacts import ArtifactStore
    from zubble_queue.embedded import Embedded
    from zubble_queue.settings import Settings

TWO_WAYS: Final = (
    "There is no broker here: start one with `zubble up` (or let this command do it with --wait), "
    "or name a Redis with ZUBBLE_REDIS_URL."
)


@dataclass(frozen=True)
class Installation:
    """An open store and what belongs to it."""

    settings: Settings
    """With redis_url filled in, also where the server is the embedded one."""
    store: RedisStore
    embedded: Embedded | None
    """None where the settings name a server."""

    @cached_property
    def artifacts(self) -> ArtifactStore:
        from zubble_queue.artifacts import ArtifactStore

        return ArtifactStore(self.settings.artifacts_url)

    def revive(self) -> None:
        """Start the embedded server again if it died; a server of the user's is not ours to start."""
        if self.embedded is not None:
            self.embedded.revive()

    @property
    def url(self) -> str:
        assert self.settings.redis_url is not None
        return self.settings.redis_url.get_secret_value()


@contextlib.asynccontextmanager
async def installation(settings: Settings, *, start: bool = False) -> AsyncIterator[Installation]:
    """Open the store.

    Args:
        settings: Where it is.
        start: Start the embedded server in a folder that has no data yet; else that is an error.

    Raises:
        CannotStart: No server is named and none was ever started here, or it does not answer.
    """
    with reached(settings, start=start) as (found, embedded):
        async with _store(found) as store:
            yield Installation(found, store, embedded)


@contextlib.contextmanager
def reached(settings: Settings, *, start: bool = False) -> Iterator[tuple[Settings, Embedded | None]]:
    """The settings with redis_url, and the embedded server where it is that one; arguments as above.

    Raises:
        CannotStart: No server is named and none was ever started here.
    """
    if settings.redis_url is not None:
        yield settings, None
        return
    from zubble_queue.embedded import Embedded

    embedded = Embedded(settings.embedded_folder)
    if not start and not embedded.folder.has_data:
        raise CannotStart(TWO_WAYS)
    with embedded:
        yield settings.model_copy(update={"redis_url": SecretStr(embedded.url)}), embedded


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[RedisStore]:
    assert settings.redis_url is not None
    store = await RedisStore.connect(
        settings.redis_url.get_secret_value(),
        namespace=settings.namespace,
        lease_seconds=settings.lease.lease_seconds,
        max_attempts=settings.max_attempts,
        record_ttl_seconds=settings.record_ttl_seconds,
    )
    try:
        yield store
    finally:
        await store.aclose()
