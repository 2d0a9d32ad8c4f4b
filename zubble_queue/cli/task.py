"""`zubble task …`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report

app = typer.Typer(help="Look at single tasks, follow them, answer them, cancel them.", no_args_is_help=True)


@app.command("ls")
def ls(
    context: typer.Context,
    batch: options.BatchName,
    state: Annotated[
        str | None, typer.Option("--state", metavar="queued|running|paused|awaiting_human|sealed")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="verified, failed, or a stop such as loop:text.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """List the tasks of a batch.

    \b
    Examples:
      zubble task ls humaneval-3f9a2c --outcome failed
      zubble task ls humaneval-3f9a2c --state running --json
    """
    report = Report("task-ls", as_json=as_json)
    from zubble_queue.cli import tasks

    return asyncio.run(tasks.ls(options.settings(context), batch, state, outcome, report))


@app.command("show")
def show(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    as_json: options.Json = False,
) -> int:
    """Show a task: its record, how it ended, its worklog entry and what was tried.

    \b
    Examples:
      zubble task show HumanEval/17 --batch humaneval-3f9a2c
      zubble task show 303394-humaneval-0-4cdc4995 --json
    """
    report = Report("task-show", as_json=as_json)
    from zubble_queue.cli import tasks

    return asyncio.run(tasks.show(options.settings(context), task, batch, report))


@app.command("tail")
def tail(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    follow: Annotated[bool, typer.Option(help="Stay until the task is sealed.")] = True,
    as_json: options.Json = False,
) -> int:
    """Print a task's events as they happen; with --json one object at the end.

    \b
    Example:
      zubble task tail HumanEval/17 --no-follow
    """
    report = Report("task-tail", as_json=as_json)
    from zubble_queue.cli import tasks

    return asyncio.run(tasks.tail(options.settings(context), task, batch, report, follow=follow))


@app.command("trace")
def trace(
    context: typer.Context,
    task: options.TaskName,
    *,
    batch: options.InBatch = None,
    whole: Annotated[bool, typer.Option("--whole", help="Cut no text.")] = False,
    as_json: options.Json = False,
) -> int:
    """Show a task's run step by step: plan, commands, results, nudges, detectors, cost, and how it ended.

    \b
    Examples:
      zubble task trace HumanEval/17 --batch humaneval-3f9a2c
      zubble task trace 303394-humaneval-0-4cdc4995 --json
    """
    report = Report("task-trace", as_json=as_json)
    from zubble_queue.cli import tracing

    return asyncio.run(tracing.trace(options.settings(context), task, batch, report, whole=whole))


@app.command("patch")
def patch(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; printed if left out.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Print what a task's agent changed, as a patch for `git apply` or `patch -p1`.

    Lines with # before it name what a patch cannot hold. Printed, control characters are shown and do
    nothing; with -o the file is as the agent made it.

    \b
    Examples:
      zubble task patch acme/sum --batch tasks-3f9a2c
      zubble task patch acme/sum -o sum.patch
    """
    report = Report("task-patch", as_json=as_json)
    from zubble_queue.cli import edits

    return asyncio.run(edits.patch(options.settings(context), task, batch, output, report))


@app.command("files")
def files(
    context: typer.Context,
    task: options.TaskName,
    *,
    batch: options.InBatch = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.tar")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole work tree instead, as it was.")] = False,
    as_json: options.Json = False,
) -> int:
    """List the files that a task's agent made or changed, and with -o write them as a tar.

    \b
    Examples:
      zubble task files acme/sum
      zubble task files acme/sum -o sum.tar
      zubble task files acme/sum --whole -o tree.tar
    """
    report = Report("task-files", as_json=as_json)
    from zubble_queue.cli import edits

    settings = options.settings(context)
    return asyncio.run(edits.files(settings, task, batch, output, report, whole=whole))


@app.command("report")
def report_file(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; printed if left out.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Print the report that a repair left in its file. A model wrote it.

    \b
    Examples:
      zubble task report web-1 --batch repairs
      zubble task report web-1 -o post-mortem.md
    """
    report = Report("task-report", as_json=as_json)
    from zubble_queue.cli import edits

    return asyncio.run(edits.post_mortem(options.settings(context), task, batch, output, report))


@app.command("cancel")
def cancel(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    as_json: options.Json = False,
) -> int:
    """Cancel a task: at once where it waits, when its worker hears of it where it runs.

    \b
    Example:
      zubble task cancel HumanEval/17 --batch humaneval-3f9a2c
    """
    report = Report("task-cancel", as_json=as_json)
    from zubble_queue.cli import tasks

    return asyncio.run(tasks.cancel(options.settings(context), task, batch, report))


@app.command("answer")
def answer(
    context: typer.Context,
    task: options.TaskName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agent is told.")],
    batch: options.InBatch = None,
    as_json: options.Json = False,
) -> int:
    """Answer the question of a task that waits for a person; it goes on.

    \b
    Example:
      zubble task answer acme/sum "The port is 8080."
    """
    report = Report("task-answer", as_json=as_json)
    from zubble_queue.cli import answering

    return asyncio.run(answering.answer(options.settings(context), task, batch, text, report))


@app.command("approve")
def approve(
    context: typer.Context,
    task: options.TaskName,
    batch: options.InBatch = None,
    as_json: options.Json = False,
) -> int:
    """Allow what a task waits for: a command, a step, going on beyond a cap or a guard.

    One that ended as blocked by a guard goes on from its end, in a new round with what is left of its budget.

    \b
    Example:
      zubble task approve acme/sum
    """
    report = Report("task-approve", as_json=as_json)
    from zubble_queue.cli import answering

    return asyncio.run(answering.decide(options.settings(context), task, batch, report, allowed=True))


@app.command("deny")
def deny(
    context: typer.Context,
    task: options.TaskName,
    *,
    batch: options.InBatch = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Told to the agent.")] = "",
    as_json: options.Json = False,
) -> int:
    """Refuse what a task waits for; it goes on without it, or ends.

    \b
    Example:
      zubble task deny acme/sum --reason "Never push to main."
    """
    report = Report("task-deny", as_json=as_json)
    from zubble_queue.cli import answering

    settings = options.settings(context)
    return asyncio.run(answering.decide(settings, task, batch, report, allowed=False, reason=reason))
