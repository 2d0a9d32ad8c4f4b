"""`zubble memory …`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report

app = typer.Typer(help="What runs remember of earlier ones, by task type.", no_args_is_help=True)
_TaskType = Annotated[str, typer.Argument(metavar="TYPE", help="The task_type of the tasks.")]


@app.command("ls")
def ls(context: typer.Context, as_json: options.Json = False) -> int:
    """List the task types of which something is remembered.

    \b
    Example:
      zubble memory ls
    """
    report = Report("memory-ls", as_json=as_json)
    from zubble_queue.cli import memories

    return asyncio.run(memories.ls(options.settings(context), report))


@app.command("show")
def show(context: typer.Context, task_type: _TaskType, as_json: options.Json = False) -> int:
    """Show what is remembered of a task type, run by run. Nobody has checked what it says.

    \b
    Example:
      zubble memory show humaneval --json
    """
    report = Report("memory-show", as_json=as_json)
    from zubble_queue.cli import memories

    return asyncio.run(memories.show(options.settings(context), task_type, report))


@app.command("forget")
def forget(
    context: typer.Context,
    task_type: _TaskType,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only what came from this task.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Forget what is remembered of a task type. The records of its tasks stay.

    \b
    Examples:
      zubble memory forget humaneval
      zubble memory forget humaneval --task HumanEval/17
    """
    report = Report("memory-forget", as_json=as_json)
    from zubble_queue.cli import memories

    return asyncio.run(memories.forget(options.settings(context), task_type, task, report))
