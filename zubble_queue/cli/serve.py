"""The commands that stay: `zubble up`, `worker`, `dispatcher`, `mock-endpoint`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Exit, Report


def up(
    context: typer.Context,
    workers: options.Workers = None,
    slots: options.Slots = None,
    as_json: options.Json = False,
) -> int:
    """Start a server and workers on this machine, and stay until Ctrl-C. Data is kept.

    \b
    Examples:
      zubble up
      zubble up --workers 2 --slots 8
    """
    report = Report("up", as_json=as_json)
    from zubble_queue.cli import serving

    return asyncio.run(serving.up(options.settings(context), workers, slots, report))


def worker(
    context: typer.Context,
    *,
    slots: options.Slots = None,
    no_feeder: Annotated[bool, typer.Option("--no-feeder", help="Never feed the queue from here.")] = False,
    pool: Annotated[list[str] | None, typer.Option("--pool", metavar="NAME", help="May be repeated.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65_535, help="Serve metrics there; 0 takes a free one."),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option("--metrics-address", help="Where; nobody who gets there is asked who he is.")
    ] = "127.0.0.1",
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
) -> int:
    """Run tasks until told to stop. The first SIGTERM or Ctrl-C hands running tasks over; the second kills.

    \b
    Examples:
      ZUBBLE_REDIS_URL=redis://queue:6379/0 zubble worker --slots 16
      zubble worker --no-feeder --metrics-port 9401
    """
    Report("worker", as_json=False)
    from zubble_queue.cli import serving

    flags = {"slots": slots, "feeder": False if no_feeder else None, "pools": pool}
    where = None if metrics_port is None else (metrics_address, metrics_port)
    return serving.worker(options.settings(context, worker=flags), parent, where)


def dispatcher(
    context: typer.Context,
    http_port: Annotated[
        int, typer.Option("--http-port", min=0, max=65_535, help="0 takes a free one.")
    ] = 9400,
    http_address: Annotated[
        str, typer.Option("--http-address", help="Where; nobody who gets there is asked who he is.")
    ] = "127.0.0.1",
    pod_deletion_cost: Annotated[
        bool,
        typer.Option("--pod-deletion-cost", help="In a cluster: mark the pods of idle workers to go first."),
    ] = False,
) -> int:
    """Feed the queue and mend what workers leave behind; small, always on, needed for scale to zero.

    Any number may run: one leads, the others wait for the lead. Each serves /healthz, /metrics and
    /scaling?pool=NAME, which says how many workers a pool should have.

    \b
    Examples:
      ZUBBLE_REDIS_URL=redis://queue:6379/0 zubble dispatcher
      zubble dispatcher --http-address 0.0.0.0 --http-port 9400
    """
    report = Report("dispatcher", as_json=False)
    from zubble_queue.cli import serving

    where = (http_address, http_port)
    settings = options.settings(context)
    return asyncio.run(serving.dispatcher(settings, report, where, deletion_cost=pod_deletion_cost))


def mock_endpoint(
    *,
    script: Annotated[
        Path, typer.Option("--script", metavar="FILE", help="What to answer: a .json or .jsonl script.")
    ],
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes a free one.")] = 0,
    as_json: options.Json = False,
) -> int:
    """Serve scripted answers as an OpenAI-compatible endpoint, until Ctrl-C.

    \b
    Example:
      zubble mock-endpoint --script script.json --port 8001
    """
    report = Report("mock-endpoint", as_json=as_json)
    from zubble_queue import registry
    from zubble_queue.errors import CannotStart

    def on_ready(url: str) -> None:
        report.say(f"Listening on {url}")
        report.result({"url": url})

    try:
        registry.load("service", "mock-endpoint")(script, host, port, on_ready=on_ready)
    except OSError as refused:
        raise CannotStart(f"{host}:{port} is not to be had: {refused.strerror or refused}.") from refused
    return Exit.DONE
