"""`zubble doctor`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report


def doctor(
    context: typer.Context,
    role: Annotated[
        str, typer.Option("--role", metavar="submit|worker|dispatcher", help="What this machine is for.")
    ] = "worker",
    as_json: options.Json = False,
) -> int:
    """Check what this machine needs, and say what to do about what is missing.

    Exits with 0 when nothing is, 3 when a configured server does not answer or a sandbox cannot be had here,
    else with 2.

    \b
    Examples:
      zubble doctor
      zubble doctor --role submit --json
    """
    report = Report("doctor", as_json=as_json)
    from zubble_queue.cli import checkup

    return asyncio.run(checkup.run(options.settings(context), role, report))
