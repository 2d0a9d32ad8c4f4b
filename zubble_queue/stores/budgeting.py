"""Ceilings of batches and tenants: shown, set, and carried out on what waits."""

from __future__ import annotations

from typing import Final

from zubble_queue.contracts.budget import AccountKind, BudgetView
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.record import OnCeiling
from zubble_queue.errors import BadInput, UnknownName
from zubble_queue.stores import codec
from zubble_queue.stores.reading import Reading

_SEALED_AT_A_TIME: Final = 200


class Budgeting(Reading):
    """What is reserved and settled at the three levels is the leases' side of the same ledger."""

    async def budget(self, kind: AccountKind, name: str) -> BudgetView:
        """Raises UnknownName: no such batch, or a tenant that neither spent nor has a ceiling."""
        key = self._keys.batch(name) if kind == "batch" else self._keys.tenant(name)
        row = await self._do("HGETALL", key)
        if not row:
            raise await self._unknown_batch(name) if kind == "batch" else UnknownName("tenant", name, ())
        return codec.budget_view(kind, name, row)

    async def set_ceiling(
        self, kind: AccountKind, name: str, micro_usd: int | None, on_ceiling: OnCeiling | None = None
    ) -> None:
        """Set or lift a ceiling; what was paused at the old one goes on.

        Args:
            kind: Whose.
            name: Of the batch or tenant.
            micro_usd: None for no ceiling.
            on_ceiling: None leaves it as it is.

        Raises:
            UnknownName: There is no such batch.
            BadInput: More than that is spent already; nothing was changed.
        """
        ceiling = "" if micro_usd is None else micro_usd
        answer = await self._run("set_ceiling", kind, name, ceiling, on_ceiling or "")
        if answer[0] == "unknown":
            raise await self._unknown_batch(name)
        if answer[0] == "below":
            spent = answer[1] / MICRO
            raise BadInput([f"The ceiling of {kind} {name!r} cannot be below the ${spent:.6f} it has spent."])

    async def seal_over_ceiling(self) -> int:
        """Seal what waits in batches that have reached a ceiling and are to end there; returns how many."""
        count, sealed = 0, _SEALED_AT_A_TIME
        while sealed == _SEALED_AT_A_TIME:
            sealed = int(await self._run("seal_over_ceiling", _SEALED_AT_A_TIME))
            count += sealed
        return count
