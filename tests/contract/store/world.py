"""What tests of the store need again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Ending, Stop, Usage, Verdict
from zubble_queue.contracts.envelope import Header, TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import BatchInfo, Claim, Lease, Refused
from zubble_queue.contracts.task import TaskInput
from zubble_queue.errors import UnknownName
from zubble_queue.stores.keys import Keys, Lifetime
from zubble_queue.stores.redis import RedisStore

PASSED = Ending(stop=Stop.SUBMITTED, verdict=Verdict.PASSED)


def envelope(batch: str, source_id: str, **fields: Any) -> TaskEnvelope:
    task = TaskInput(
        task_id=identity.task_id(batch, source_id, fields.get("repeat", 1)),
        description=f"Do {source_id}.",
        allowed_tools=("shell",),
        success_criteria="It is done.",
        verify_command="true",
    )
    return TaskEnvelope(batch=batch, source_id=source_id, task=task, model="scripted", **fields)


def event(seq: int, type_: str = "noted", **data: Any) -> Event:
    return Event(seq=seq, time=float(seq), attempt=1, type=type_, data=data)


def usage(**counts: int) -> Usage:
    return Usage(**{"calls": 1, **counts})


class World:
    """A store and its namespace."""

    envelope = staticmethod(envelope)
    event = staticmethod(event)
    usage = staticmethod(usage)
    passed = PASSED

    def __init__(self, url: str, namespace: str, store: RedisStore, admin: Redis) -> None:
        self.url, self.namespace, self.store, self.admin = url, namespace, store, admin
        self.keys = Keys(namespace)
        self._stores = [store]

    @classmethod
    async def create(cls, url: str, namespace: str) -> World:
        admin = Redis.from_url(url, decode_responses=True, protocol=2)
        return cls(url, namespace, await RedisStore.connect(url, namespace=namespace), admin)

    async def close(self) -> None:
        for store in self._stores:
            await store.aclose()
        await self.admin.aclose()

    async def another(self, **options: Any) -> RedisStore:
        """A second client of the same namespace."""
        store = await RedisStore.connect(self.url, namespace=self.namespace, **options)
        self._stores.append(store)
        return store

    async def submit(self, *source_ids: str, batch: str = "b", **fields: Any) -> list[str]:
        """Create tasks in an open batch; returns their ids."""
        envelopes = [envelope(batch, source_id, **fields) for source_id in source_ids]
        await self.store.create_batch(BatchInfo(name=batch))
        await self.store.add_tasks(batch, envelopes)
        await self.store.open_batch(batch)
        return [each.task_id for each in envelopes]

    async def announce_one(self) -> Header:
        [header] = await self.store.announce(1)
        return header

    async def claim(self, header: Header | None = None, worker_id: str = "w") -> Claim:
        """The claim of the next waiting task, or of one that was announced."""
        claim = await self.store.claim(header or await self.announce_one(), worker_id=worker_id)
        assert not isinstance(claim, Refused), claim
        return claim

    async def running(self, **fields: Any) -> Lease:
        """The lease of a fresh task that is running."""
        await self.submit("a", **fields)
        return (await self.claim()).lease

    async def expire(self, lease: Lease) -> None:
        """As if its time had run out."""
        await self.admin.zadd(self.keys.leases, {lease.task_id: 1})

    async def expire_all(self) -> None:
        running = await self.admin.zrange(self.keys.leases, 0, -1)
        await self.admin.zadd(self.keys.leases, dict.fromkeys(running, 1))

    async def lose(self, lease: Lease) -> None:
        """As if its worker had died, and the reaper had come by."""
        await self.expire(lease)
        await self.store.reap()

    async def cancel_waiting(self) -> None:
        [task_id] = await self.submit("to be cancelled", batch="other")
        await self.admin.delete(self.keys.wake)
        await self.store.cancel_task(task_id)

    async def until(self, true: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not await true():  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)

    async def now(self) -> float:
        """Seconds since the epoch by the server's clock."""
        seconds, microseconds = await self.admin.time()
        return seconds + microseconds / 1_000_000

    async def field(self, task_id: str, name: str) -> str | None:
        return await self.admin.hget(self.keys.task(task_id), name)

    async def keys_that_break_the_table(self) -> list[str]:
        """Keys of this namespace that no row of the table allows, or that live longer than it says."""
        found = [key async for key in self.admin.scan_iter(f"{self.namespace}:*", count=1_000)]
        pipeline = self.admin.pipeline(transaction=False)
        for key in found:
            pipeline.type(key).ttl(key)
        answers = await pipeline.execute()
        facts = zip(found, answers[::2], answers[1::2], strict=True)
        return [key for key, type_, ttl in facts if not await self._as_promised(key, type_, has_ttl=ttl >= 0)]

    async def _as_promised(self, key: str, type_: str, *, has_ttl: bool) -> bool:
        kind = self.keys.kind(key)
        if kind is None or kind.redis_type != type_:
            return False
        if kind.lifetime is Lifetime.ALWAYS:
            return has_ttl
        if kind.lifetime in {Lifetime.NEVER, Lifetime.ACCOUNT}:
            return not has_ttl
        name = key.removeprefix(self.keys.prefix).split(":")[1]
        over = self._task_is_over if kind.lifetime is Lifetime.SEALED else self._batch_is_over
        return has_ttl == await over(name)

    async def _task_is_over(self, task_id: str) -> bool:
        return await self.field(task_id, "state") == "sealed"

    async def _batch_is_over(self, name: str) -> bool:
        try:
            batch = await self.store.batch(name)
        except UnknownName:
            return True
        return batch.sealed == batch.total
