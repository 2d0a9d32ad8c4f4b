"""Looking for keys that live longer than the table of keys says, or that it does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from zubble_queue.contracts.record import TaskState
from zubble_queue.stores.keys import Lifetime
from zubble_queue.stores.reading import Reading

_SCAN_COUNT: Final = 1_000


@dataclass(slots=True)
class Audit:
    """What was found in the namespace."""

    keys: int = 0
    wrong: list[str] = field(default_factory=list)
    """Keys without the time to live they should have, and keys that are not in the table."""


class Auditing(Reading):
    """Nothing here writes."""

    async def audit(self) -> Audit:
        """Compare every key with the table; one that looks wrong is looked at twice, for it may be moving."""
        found = Audit()
        async for page in self._scanned():
            found.keys += len(page)
            found.wrong += await self._wrong(await self._wrong(page))
        return found

    async def _scanned(self) -> AsyncIterator[list[str]]:
        cursor: str | int = 0
        while True:
            cursor, page = await self._do(
                "SCAN", cursor, "MATCH", f"{self._keys.prefix}*", "COUNT", _SCAN_COUNT
            )
            yield page
            if int(cursor) == 0:
                return

    async def _wrong(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that exist and are not as promised."""
        lives = await self._pipe([("TTL", key) for key in keys])
        endless = [key for key, seconds in zip(keys, lives, strict=True) if seconds == -1]
        over = await self._over(endless)
        unknown = [key for key in keys if self._keys.kind(key) is None]
        return list(dict.fromkeys([*unknown, *(key for key in endless if over[key])]))

    async def _over(self, keys: Sequence[str]) -> dict[str, bool]:
        """Whether each key's time has come: then it should have a time to live."""
        owners = [self._owner(key) for key in keys]
        rows = await self._pipe([("HMGET", owner, "state", "total", "state:sealed") for owner in owners])
        return {key: self._is_over(key, row) for key, row in zip(keys, rows, strict=True)}

    def _owner(self, key: str) -> str:
        """The hash of the task or batch that a key belongs to."""
        kind, *names = key.removeprefix(self._keys.prefix).split(":")
        return self._keys.task(names[0]) if kind == "task" else self._keys.batch("".join(names[:1]))

    def _is_over(self, key: str, row: Sequence[str | None]) -> bool:
        kind = self._keys.kind(key)
        if kind is None or kind.lifetime in {Lifetime.NEVER, Lifetime.ACCOUNT}:
            return False
        if kind.lifetime is Lifetime.ALWAYS:
            return True
        state, total, sealed = row
        if kind.lifetime is Lifetime.SEALED:
            return state in (None, TaskState.SEALED)
        return state is None or (state != "loading" and int(sealed or 0) >= int(total or 0))
