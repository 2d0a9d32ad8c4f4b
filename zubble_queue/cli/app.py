"""The tree of commands."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import (
    batch,
    budget,
    config,
    doctor,
    flower,
    loop,
    memory,
    replay,
    run,
    sandbox,
    serve,
    task,
)
from zubble_queue.cli.options import Globals

app = typer.Typer(
    name="zubble",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from zubble_queue import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def zubble(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", help="Where the embedded server and the artifacts are.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option("--redis-url", metavar="URL", help="The Redis or Valkey server to use.")
    ] = None,
    version: Annotated[  # noqa: ARG001  # its callback has printed it and left
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A distributed job queue of sandboxed LLM agents.

    \b
    Two commands, one machine:
      zubble batch submit examples/humaneval/HumanEval.jsonl.gz --model NAME --wait
      zubble batch export BATCH --format csv -o results.csv

    \b
    Exit codes: 0 done; 1 done, some not verified; 2 bad input or cannot start; 3 infrastructure lost;
    4 a ceiling was reached; 130 detached.
    """
    context.obj = Globals(home=home, redis_url=redis_url)


app.add_typer(batch.app, name="batch")
app.add_typer(task.app, name="task")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(memory.app, name="memory")
app.add_typer(budget.app, name="budget")
app.add_typer(config.app, name="config")
app.command("run")(run.run)
app.command("loop")(loop.loop)
app.command("up")(serve.up)
app.command("worker")(serve.worker)
app.command("dispatcher")(serve.dispatcher)
app.command("flower")(flower.flower)
app.command("mock-endpoint")(serve.mock_endpoint)
app.command("detect")(sandbox.detect)
app.command("replay")(replay.replay)
app.command("doctor")(doctor.doctor)
