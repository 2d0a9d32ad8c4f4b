"""`zubble run`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report


def run(
    context: typer.Context,
    *,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="A model defined in zubble.toml.")],
    file: Annotated[
        Path | None,
        typer.Argument(help="A task file or a folder of a task, with --id where it holds several."),
    ] = None,
    source_id: Annotated[str | None, typer.Option("--id", help="Which task of the file.")] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TEXT|FILE.md", help="Without a task file: what is to be done."),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="CMD",
            help="With --task: exits with 0 when it is done. Without it only a report is asked for.",
        ),
    ] = None,
    report_path: Annotated[
        str,
        typer.Option(
            "--report-path", metavar="FILE", help="Where its report is wanted; of a repair it is kept."
        ),
    ] = "report.md",
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE", help="With --task: a file of the work tree."),
    ] = None,
    max_iterations: options.MaxIterations = None,
    max_tokens: options.MaxTokens = None,
    minutes: options.Minutes = None,
    max_wallclock_seconds: options.MaxWallclock = None,
    max_spend_usd: options.MaxSpend = None,
    max_steps: options.MaxSteps = None,
    max_turn_secs: options.MaxTurnSecs = None,
    guard: options.Guard = None,
    repetition: options.Repetition = None,
    protocol: options.Protocol = None,
    level: options.Level = None,
    temperature: options.Temperature = None,
    stop_sequences: options.StopSequences = None,
    sandbox: options.Sandbox = None,
    container: options.Container = None,
    min_strength: options.MinStrength = None,
    network: options.Network = None,
    allow_host: options.AllowHost = None,
    background: options.Background = False,
    memory: options.Memory = "both",
    memory_dir: Annotated[
        Path | None,
        typer.Option("--memory-dir", metavar="DIR", help="Bring memory from here, and leave it here."),
    ] = None,
    attended: Annotated[
        bool | None,
        typer.Option(
            "--attended/--unattended",
            help="Whether you are asked, also at a cap; by default where this is a terminal.",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", metavar="FILE", help="Write what was tried; .zubble/journal.json without FILE."
        ),
    ] = None,
    endpoint: options.Endpoint = None,
    price: options.Price = None,
    api_key_env: options.ApiKeyEnv = None,
    work_tree: Annotated[
        Path | None, typer.Option("--work-tree", metavar="FILE.tar", help="Where to write the work tree.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Run one task, here and now, and print what happens. Exits with 4 when a limit was reached.

    \b
    Examples:
      zubble run --task "Write hello.py that prints hello" --verify "python3 hello.py | grep -qx hello" \\
          --model qwen --endpoint http://127.0.0.1:8000/v1 --price free
      zubble run --task "Repair nginx" --verify "curl -fs localhost" --env docker --env-container web-1 \\
          --protocol repair --endpoint http://127.0.0.1:8000/v1 --model qwen --level xhigh --minutes 15
      zubble run HumanEval.jsonl.gz --id HumanEval/3 --model small --minutes 5 --work-tree tree.tar
    """
    report = Report("run", as_json=as_json)
    from zubble_queue.cli import defaults, running, terminal

    budget = options.budget(
        max_iterations=max_iterations,
        max_tokens=max_tokens,
        minutes=minutes,
        max_wallclock_seconds=max_wallclock_seconds,
        max_spend_usd=max_spend_usd,
    )
    asked = terminal.is_attended(attended)
    order = running.Order(
        defaults=defaults.task_defaults(
            batch=running.batch_name(),
            model=model,
            budget=budget,
            level=level,
            temperature=temperature,
            stop=stop_sequences or (),
            sandbox=sandbox,
            container=container,
            min_strength=min_strength,
            network=network,
            allow_hosts=allow_host or (),
            background=background,
            memory=memory,
            protocol=protocol,
            max_steps=max_steps,
            max_turn_secs=max_turn_secs,
            guards=guard or (),
            repetition=repetition,
            ask=terminal.AT_THE_TERMINAL if asked else None,
        ),
        settings=options.settings(context),
        file=file,
        source_id=source_id,
        task=task,
        verify=verify,
        inputs=inputs or (),
        endpoint=defaults.endpoint(model, endpoint, price, api_key_env),
        work_tree=work_tree,
        memory_dir=memory_dir,
        journal=journal,
        report_path=report_path,
        attended=asked,
    )
    return asyncio.run(running.run(order, report))
