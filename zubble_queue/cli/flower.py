"""`zubble flower`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report


def flower(
    context: typer.Context,
    *,
    address: Annotated[str, typer.Option("--address", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes a free one.")] = 5555,
    url_prefix: Annotated[
        str | None, typer.Option("--url-prefix", metavar="PATH", help="Below which path a proxy has it.")
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="Who may look: a line `name:password` for each."),
    ] = None,
    open_door: Annotated[
        bool, typer.Option("--open", help="Let in whoever gets here: something in front asks who it is.")
    ] = False,
    max_tasks: Annotated[
        int | None,
        typer.Option("--max-tasks", min=1, help="Attempts it remembers; by default 50,000, in 600 MB."),
    ] = None,
    persistent: Annotated[
        bool, typer.Option("--persistent", help="Keep its history in a file below home.")
    ] = False,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- FLOWER OPTIONS]", help="Flower's own, after `--`.")
    ] = None,
) -> int:
    """Show every attempt, its header and its ending, and the workers, in Flower, until Ctrl-C.

    It shows and changes nothing; `-- --read_only=false` brings Celery's buttons back. /metrics and
    /healthcheck ask nobody who he is. Variables such as FLOWER_BASIC_AUTH are read.

    \b
    Examples:
      zubble flower
      zubble flower --address 0.0.0.0 --users flower-users --url-prefix flower --persistent
      zubble flower --address 0.0.0.0 --open -- --xheaders=true
    """
    Report("flower", as_json=False)
    from zubble_queue.cli import flower_server

    given: dict[str, str | int | None] = {
        "address": address,
        "port": port,
        "url_prefix": url_prefix,
        "max_tasks": max_tasks,
    }
    return flower_server.run(
        options.settings(context), given, tuple(more or ()), users, open_door=open_door, persistent=persistent
    )
