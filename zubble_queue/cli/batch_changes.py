"""`zubble batch pause|resume|set|retry|rm`: what may become of a batch after it was submitted."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report

app = typer.Typer()


@app.command("pause")
def pause(context: typer.Context, batch: options.BatchName, as_json: options.Json = False) -> int:
    """Begin nothing more of a batch until it is resumed; what runs goes on to its end.

    \b
    Example:
      zubble batch pause humaneval-3f9a2c
    """
    report = Report("batch-pause", as_json=as_json)
    from zubble_queue.cli import changes

    return asyncio.run(changes.pause(options.settings(context), batch, report))


@app.command("resume")
def resume(context: typer.Context, batch: options.BatchName, as_json: options.Json = False) -> int:
    """Go on with a batch that was paused.

    \b
    Example:
      zubble batch resume humaneval-3f9a2c
    """
    report = Report("batch-resume", as_json=as_json)
    from zubble_queue.cli import changes

    return asyncio.run(changes.resume(options.settings(context), batch, report))


@app.command("set")
def set_(
    context: typer.Context,
    batch: options.BatchName,
    *,
    weight: options.Weight = None,
    priority: options.Priority = None,
    concurrency: options.Concurrency = None,
    retries: options.Retries = None,
    as_json: options.Json = False,
) -> int:
    """Change a batch's share of the slots or its retries while it runs; what is left out stays as it is.

    \b
    Examples:
      zubble batch set humaneval-3f9a2c --weight 3
      zubble batch set humaneval-3f9a2c --priority 5 --concurrency 20
      zubble batch set humaneval-3f9a2c --concurrency 0
      zubble batch set humaneval-3f9a2c --retries 2
    """
    report = Report("batch-set", as_json=as_json)
    from zubble_queue.cli import changes

    given = options.tuning_changes(weight=weight, priority=priority, concurrency=concurrency, retries=retries)
    return asyncio.run(changes.tune(options.settings(context), batch, given, report))


@app.command("retry")
def retry(
    context: typer.Context,
    batch: options.BatchName,
    *,
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", help="Those that ended so, as failed, stuck, loop:text, or all of loop."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="TASK", help="This one: a task id or the id in the user's file."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Begin a new round of sealed tasks, with a fresh budget. Their old seals stay in the history.

    \b
    Examples:
      zubble batch retry humaneval-3f9a2c --outcome stuck --outcome infra
      zubble batch retry humaneval-3f9a2c --outcome limit
      zubble batch retry humaneval-3f9a2c --task HumanEval/17
    """
    report = Report("batch-retry", as_json=as_json)
    from zubble_queue.cli import changes

    outcomes, tasks = tuple(outcome or ()), tuple(task or ())
    return asyncio.run(changes.retry(options.settings(context), batch, outcomes, tasks, report))


@app.command("rm")
def rm(context: typer.Context, batch: options.BatchName, as_json: options.Json = False) -> int:
    """Forget a batch whose tasks are all sealed. Its artifacts stay: other batches may share them.

    \b
    Example:
      zubble batch rm humaneval-3f9a2c
    """
    report = Report("batch-rm", as_json=as_json)
    from zubble_queue.cli import changes

    return asyncio.run(changes.rm(options.settings(context), batch, report))
