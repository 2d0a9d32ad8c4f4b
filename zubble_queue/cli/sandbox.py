"""`zubble sandbox …` and `zubble detect`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Exit, Report, plain

app = typer.Typer(help="Run commands where agents run theirs.", no_args_is_help=True)


@app.callback()
def sandbox() -> None:
    """Run commands where agents run theirs."""


@app.command("exec")
def execute(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    sandbox: options.Sandbox = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3_600, metavar="SECONDS", help="Then it is killed.")
    ] = 30.0,
    as_json: options.Json = False,
) -> int:
    """Run one command in a fresh sandbox. Exits with 0 when the command did, else with 1.

    \b
    Examples:
      zubble sandbox exec -- ls -la /
      zubble sandbox exec --timeout 5 --json -- sh -c 'cat /proc/self/status'
    """
    report = Report("sandbox-exec", as_json=as_json)
    from zubble_queue.cli import sandboxes

    return asyncio.run(sandboxes.execute(options.settings(context), sandbox, command, timeout, report))


def detect(
    file: Annotated[Path, typer.Argument(help="A text, as a model wrote it.")],
    profile: Annotated[str, typer.Option("--profile", metavar="graduated|strict")] = "graduated",
    as_json: options.Json = False,
) -> int:
    """Run the repetition detector over a file, as if a model streamed it.

    \b
    Example:
      zubble detect answer.txt --profile strict --json
    """
    report = Report("detect", as_json=as_json)
    from zubble_queue import registry

    found = registry.load("service", "detect")(file, profile)
    for fired in found["fired"]:
        report.say(
            f"threshold {fired['threshold']} at token {fired['token']}, period {fired['period']}, "
            f"{plain(str(fired['channel']))}"
        )
    report.say(f"{found['tokens']} tokens, {len(found['fired'])} thresholds reached ({found['profile']}).")
    report.result(found)
    return Exit.DONE
