"""The store: everything Redis or Valkey knows, behind one class."""

from __future__ import annotations

from typing import Self

from zubble_queue.stores.address import place
from zubble_queue.stores.asking import Asking
from zubble_queue.stores.auditing import Auditing
from zubble_queue.stores.budgeting import Budgeting
from zubble_queue.stores.connection import StoreOptions, open_client
from zubble_queue.stores.demanding import Demanding
from zubble_queue.stores.feeding import Feeding
from zubble_queue.stores.keys import Keys
from zubble_queue.stores.leasing import Leasing
from zubble_queue.stores.limits import Limits
from zubble_queue.stores.remembering import Remembering


class RedisStore(Feeding, Leasing, Asking, Budgeting, Limits, Remembering, Demanding, Auditing):
    """Batches, tasks, leases and workers in Redis (7.0 or newer) or Valkey (7.2 or newer).

    Times are seconds since the epoch by the server's clock. Every method raises StoreUnavailable when the
    server does not answer, and what its own docstring says.
    """

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        namespace: str = "zubble",
        lease_seconds: float = 60,
        max_attempts: int = 3,
        record_ttl_seconds: int = 30 * 86_400,
    ) -> Self:
        """Connect to a server that is fit for the purpose.

        Args:
            url: As `stores.address` reads it.
            namespace: Put in front of every key, so that installations can share a server.
            lease_seconds: How long an attempt may go without renewal before it can be taken away.
            max_attempts: Abnormal ends after which a task is sealed.
            record_ttl_seconds: How long sealed records are kept.

        Raises:
            CannotStart: One sentence that says what is wrong with the URL or the server.
        """
        options = StoreOptions(lease_seconds, max_attempts, record_ttl_seconds)
        return cls(await open_client(url), Keys(namespace), options, place(url))
