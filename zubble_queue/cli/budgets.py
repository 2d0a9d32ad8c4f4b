"""What `zubble budget show|set` do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report, usd
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.record import MOST_USD
from zubble_queue.errors import BadInput
from zubble_queue.stores.codec import micro_usd

if TYPE_CHECKING:
    from zubble_queue.contracts.budget import AccountKind, BudgetView
    from zubble_queue.settings import Settings

_KINDS: Final = ("batch", "tenant")


async def show(settings: Settings, account: str, report: Report) -> Exit:
    kind, name = _account(account)
    async with installation(settings) as place:
        budget = await place.store.budget(kind, name)
    _say(budget, report)
    report.result(_values(budget))
    return Exit.DONE


async def set_ceiling(settings: Settings, account: str, amount: str, report: Report) -> Exit:
    kind, name = _account(account)
    ceiling = _amount(amount)
    async with installation(settings) as place:
        await place.store.set_ceiling(kind, name, ceiling)
        budget = await place.store.budget(kind, name) if ceiling is not None or kind == "batch" else None
    if budget is None:
        report.say(f"Tenant {name} has no ceiling.")
        report.result({"account": account, "ceiling_usd": None})
        return Exit.DONE
    _say(budget, report)
    report.result(_values(budget))
    return Exit.DONE


def _account(text: str) -> tuple[AccountKind, str]:
    kind, _, name = text.partition("/")
    if kind not in _KINDS or not name:
        raise BadInput([f"{text!r} is no account: give batch/NAME or tenant/NAME."])
    return cast("AccountKind", kind), name


def _amount(text: str) -> int | None:
    if text == "none":
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= MOST_USD:
        raise BadInput(
            [f"A ceiling must be above 0 and at most {MOST_USD:,} US dollars, or none; got {text!r}."]
        )
    return micro_usd(amount)


def _say(budget: BudgetView, report: Report) -> None:
    allowed = "no ceiling" if budget.ceiling_micro_usd is None else f"of {_usd(budget.ceiling_micro_usd)}"
    report.say(
        f"{budget.kind.capitalize()} {budget.name}: {_usd(budget.settled_micro_usd)} spent, {allowed}; "
        f"{_usd(budget.reserved_micro_usd)} reserved by calls that are being made."
    )
    if budget.reached:
        report.say(f"The ceiling is reached: zubble budget set {budget.kind}/{budget.name} USD raises it.")
    rows = [(kind, *row) for kind, part in _parts(budget).items() for row in sorted(part.items())]
    if rows:
        report.table(("BY", "NAME", "SPENT"), ((kind, name, usd(amount)) for kind, name, amount in rows))


def _values(budget: BudgetView) -> dict[str, Any]:
    ceiling = budget.ceiling_micro_usd
    return {
        "account": f"{budget.kind}/{budget.name}",
        "ceiling_usd": None if ceiling is None else ceiling / MICRO,
        "settled_usd": budget.settled_micro_usd / MICRO,
        "reserved_usd": budget.reserved_micro_usd / MICRO,
        "reached": budget.reached,
        "on_ceiling": budget.on_ceiling,
        **{f"by_{kind}_usd": part for kind, part in _parts(budget).items()},
    }


def _parts(budget: BudgetView) -> dict[str, dict[str, float]]:
    return {"model": _in_usd(budget.by_model), "outcome": _in_usd(budget.by_outcome)}


def _in_usd(amounts: Mapping[str, int]) -> dict[str, float]:
    return {name: amount / MICRO for name, amount in amounts.items()}


def _usd(amount: int) -> str:
    return usd(amount / MICRO)
