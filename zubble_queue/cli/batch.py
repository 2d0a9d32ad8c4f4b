"""`zubble batch …`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import batch_changes, options
from zubble_queue.cli.report import Report

app = typer.Typer(help="Submit batches, watch them, export their results.", no_args_is_help=True)
app.add_typer(batch_changes.app)

_Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="auto, or an installed reader: envelopes, harbor, humaneval."
    ),
]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, help="The first so many tasks of each file.")]
_Repeats = Annotated[int, typer.Option("--repeats", min=1, max=1_000, help="Samples per task, for pass@k.")]


@app.command("submit")
def submit(
    context: typer.Context,
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|FOLDER...", help="JSON lines, also gzipped; or folders of Harbor tasks."
        ),
    ],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="A model defined in zubble.toml.")],
    batch: Annotated[
        str, typer.Option("--batch", metavar="NAME", help="By default from the file, model and budget.")
    ] = "",
    form: _Format = "auto",
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until every task is sealed; without a broker, run them here.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be created.")] = False,
    limit: _Limit = None,
    repeats: _Repeats = 1,
    max_iterations: options.MaxIterations = None,
    max_tokens: options.MaxTokens = None,
    minutes: options.Minutes = None,
    max_wallclock_seconds: options.MaxWallclock = None,
    max_spend_usd: options.MaxSpend = None,
    max_steps: options.MaxSteps = None,
    max_turn_secs: options.MaxTurnSecs = None,
    guard: options.Guard = None,
    repetition: options.Repetition = None,
    ask: options.Ask = False,
    ask_deadline_seconds: options.AskDeadline = None,
    protocol: options.Protocol = None,
    max_batch_usd: options.MaxBatch = None,
    on_ceiling: options.OnCeiling = None,
    tenant: options.Tenant = "default",
    retries: options.Retries = None,
    level: options.Level = None,
    temperature: options.Temperature = None,
    sandbox: options.Sandbox = None,
    container: options.Container = None,
    min_strength: options.MinStrength = None,
    network: options.Network = None,
    allow_host: options.AllowHost = None,
    background: options.Background = False,
    memory: options.Memory = None,
    pool: options.Pool = None,
    weight: options.Weight = None,
    priority: options.Priority = None,
    concurrency: options.Concurrency = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE")] = None,
    workers: options.Workers = None,
    slots: options.Slots = None,
    endpoint: options.Endpoint = None,
    price: options.Price = None,
    api_key_env: options.ApiKeyEnv = None,
    as_json: options.Json = False,
) -> int:
    """Submit files or folders of tasks as one batch. Submitting again creates only what is new.

    \b
    Examples:
      zubble batch submit tasks.jsonl --model small --dry-run
      zubble batch submit tasks.jsonl --model small --wait
      zubble batch submit tasks.jsonl --model small --max-batch-usd 25 --retries 2
      zubble batch submit tasks.jsonl --model small --pool gpu --weight 3 --concurrency 20
      zubble batch submit HumanEval.jsonl.gz --model small --limit 10 --repeats 5
      zubble batch submit terminal-bench/tasks --model small --sandbox docker --network open
      zubble batch submit tasks.jsonl --model qwen --endpoint http://127.0.0.1:8000/v1 --price free --wait
    """
    report = Report("batch-submit", as_json=as_json)
    from zubble_queue.cli import defaults, planning, submitting

    plan = planning.Plan(
        files=tuple(files),
        format=form,
        defaults=defaults.task_defaults(
            batch=batch,
            model=model,
            budget=options.budget(
                max_iterations=max_iterations,
                max_tokens=max_tokens,
                minutes=minutes,
                max_wallclock_seconds=max_wallclock_seconds,
                max_spend_usd=max_spend_usd,
            ),
            level=level,
            temperature=temperature,
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
            ask=defaults.asking(human=ask, deadline_seconds=ask_deadline_seconds),
            pool=pool,
            repeats=repeats,
            tenant=tenant,
            labels=label or (),
        ),
        settings=options.settings(context),
        wait=wait,
        dry_run=dry_run,
        limit=limit,
        workers=workers,
        slots=slots,
        max_batch_usd=defaults.batch_ceiling(max_batch_usd),
        on_ceiling=defaults.on_ceiling(on_ceiling, wait=wait),
        tuning=options.tuning_changes(
            weight=weight, priority=priority, concurrency=concurrency, retries=retries
        ),
        endpoint=defaults.endpoint(model, endpoint, price, api_key_env),
    )
    return asyncio.run(submitting.submit(plan, report))


@app.command("watch")
def watch(
    context: typer.Context,
    batch: options.BatchName,
    as_json: options.Json = False,
) -> int:
    """Watch a batch until every task is sealed. Ctrl-C detaches; the batch goes on.

    \b
    Example:
      zubble batch watch humaneval-3f9a2c
    """
    report = Report("batch-watch", as_json=as_json)
    from zubble_queue.cli import batches

    return asyncio.run(batches.watch(options.settings(context), batch, report))


@app.command("ls")
def ls(
    context: typer.Context,
    *,
    awaiting: Annotated[
        bool, typer.Option("--awaiting", help="Only batches in which a task waits for a person.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """List the batches.

    \b
    Examples:
      zubble batch ls --json
      zubble batch ls --awaiting
    """
    report = Report("batch-ls", as_json=as_json)
    from zubble_queue.cli import batches

    return asyncio.run(batches.ls(options.settings(context), report, awaiting=awaiting))


@app.command("show")
def show(context: typer.Context, batch: options.BatchName, as_json: options.Json = False) -> int:
    """Show a batch: states, outcomes, pass@k, what was spent, and where the time went.

    \b
    Example:
      zubble batch show humaneval-3f9a2c --json
    """
    report = Report("batch-show", as_json=as_json)
    from zubble_queue.cli import batches

    return asyncio.run(batches.show(options.settings(context), batch, report))


@app.command("cancel")
def cancel(context: typer.Context, batch: options.BatchName, as_json: options.Json = False) -> int:
    """Cancel a batch: waiting tasks are sealed at once, running ones when their worker hears of it.

    \b
    Example:
      zubble batch cancel humaneval-3f9a2c
    """
    report = Report("batch-cancel", as_json=as_json)
    from zubble_queue.cli import batches

    return asyncio.run(batches.cancel(options.settings(context), batch, report))


@app.command("export")
def export(
    context: typer.Context,
    batch: options.BatchName,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="jsonl|csv|humaneval|patches|atif|mini|events")
    ] = "jsonl",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File to write, standard output if left out; of trajectories the folder."
        ),
    ] = None,
    edits: Annotated[
        Path | None,
        typer.Option("--edits", metavar="FOLDER", help="Where to write the patch and files of each task."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Write the results of a batch's sealed tasks.

    \b
    jsonl      one TaskOutput and ending a line
    csv        one row a task, for a spreadsheet
    humaneval  {task_id, completion, passed, result} a line, the completion from the sealed work tree
    patches    {instance_id, model_name_or_path, model_patch} a line, as SWE-bench takes predictions
    atif       a trajectory a file, as Harbor has them (ATIF v1.7)
    mini       a trajectory a file, as mini-swe-agent 1.1 has them
    events     an event log a file, one JSON object a line

    \b
    Examples:
      zubble batch export humaneval-3f9a2c --format csv -o results.csv
      zubble batch export humaneval-3f9a2c --format humaneval -o samples.jsonl
      zubble batch export tasks-3f9a2c --format patches -o predictions.jsonl --edits edits
      zubble batch export tasks-3f9a2c --format atif -o trajectories
    """
    report = Report("batch-export", as_json=as_json)
    from zubble_queue.cli import exporting

    return asyncio.run(exporting.export(options.settings(context), batch, form, output, report, edits=edits))
