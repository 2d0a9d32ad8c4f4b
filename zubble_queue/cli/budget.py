"""`zubble budget …`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report

app = typer.Typer(help="Show and set what batches and tenants may spend.", no_args_is_help=True)

_Account = Annotated[str, typer.Argument(metavar="batch/NAME|tenant/NAME")]


@app.command("show")
def show(context: typer.Context, account: _Account, as_json: options.Json = False) -> int:
    """Show what is settled, reserved and allowed, by model and by outcome.

    \b
    Examples:
      zubble budget show batch/humaneval-3f9a2c
      zubble budget show tenant/default --json
    """
    report = Report("budget-show", as_json=as_json)
    from zubble_queue.cli import budgets

    return asyncio.run(budgets.show(options.settings(context), account, report))


@app.command("set")
def set_(
    context: typer.Context,
    account: _Account,
    usd: Annotated[str, typer.Argument(metavar="USD|none", help="US dollars in all; none lifts it.")],
    as_json: options.Json = False,
) -> int:
    """Set or lift a ceiling. What was paused at a lower one goes on.

    \b
    Examples:
      zubble budget set batch/humaneval-3f9a2c 25
      zubble budget set tenant/default none
    """
    report = Report("budget-set", as_json=as_json)
    from zubble_queue.cli import budgets

    return asyncio.run(budgets.set_ceiling(options.settings(context), account, usd, report))
