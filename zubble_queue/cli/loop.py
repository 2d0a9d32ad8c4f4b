"""`zubble loop`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report

if TYPE_CHECKING:
    from zubble_queue.contracts.task import LoopBudget
    from zubble_queue.settings import Settings

_MOST_USD_OF_A_RUN: Final = 50.0
_MOST_MINUTES: Final = 10_080


def loop(
    context: typer.Context,
    *,
    task: Annotated[str, typer.Option("--task", metavar="TEXT|FILE.md", help="What is to be done.")],
    work: Annotated[
        Path, typer.Option("--work", metavar="DIR", help="The folder that is worked on, made where needed.")
    ] = Path("work"),
    plan: Annotated[
        str, typer.Option("--plan", metavar="PATH", help="The plan, in the folder; the agent keeps it.")
    ] = "PLAN.md",
    verify: Annotated[
        str | None,
        typer.Option("--verify", metavar="CMD", help="Exits with 0 when it is done. It alone decides."),
    ] = None,
    completion_signal: Annotated[
        str | None,
        typer.Option(
            "--completion-signal",
            metavar="TEXT",
            help="The last line of the claim to be done, <done> without TEXT; with --verify both are needed.",
        ),
    ] = None,
    fresh_context: Annotated[  # noqa: ARG001  # there is no other way
        bool, typer.Option("--fresh-context", help="Begin each iteration with a fresh context, as always.")
    ] = True,
    max_iterations: Annotated[
        int, typer.Option("--max-iterations", min=1, max=1_000, help="The most fresh contexts.")
    ] = 20,
    max_attempts: Annotated[
        int,
        typer.Option(
            "--max-attempts", min=1, max=10, help="So many in a row without evidence of progress are stuck."
        ),
    ] = 3,
    max_spend_usd: Annotated[
        float, typer.Option("--max-spend-usd", help="US dollars for the whole loop.")
    ] = 5.0,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", min=256, help="Tokens for the whole loop; by default what all iterations may use."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", help="Of work for the whole loop; by default what all iterations may use."),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", help="Steps of one iteration, at most 100; 20 by default.")
    ] = None,
    iteration_tokens: Annotated[
        int | None, typer.Option("--iteration-tokens", help="Of one iteration, at most 500,000.")
    ] = None,
    iteration_minutes: Annotated[
        float | None, typer.Option("--iteration-minutes", help="Of one iteration, at most 60.")
    ] = None,
    model: options.Model = None,
    endpoint: options.Endpoint = None,
    price: options.Price = None,
    api_key_env: options.ApiKeyEnv = None,
    protocol: options.Protocol = None,
    level: options.Level = None,
    temperature: options.Temperature = None,
    stop_sequences: options.StopSequences = None,
    repetition: options.Repetition = None,
    guard: options.Guard = None,
    sandbox: options.Sandbox = None,
    container: options.Container = None,
    min_strength: options.MinStrength = None,
    network: options.Network = None,
    allow_host: options.AllowHost = None,
    background: options.Background = False,
    memory: options.Memory = "both",
    anew: Annotated[
        bool, typer.Option("--anew", help="Forget the loop that is in the folder; its files stay.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Work at one task in iterations, each with a fresh context, until it is done, stuck, or out of budget.

    The same command goes on where it was, after Ctrl-C too. Exits with 4 when a limit was reached.

    \b
    Examples:
      zubble loop --task spec.md --max-iterations 20 --fresh-context --completion-signal
      zubble loop --task spec.md --verify "make test" --work . --model qwen \\
          --endpoint http://127.0.0.1:8000/v1 --max-spend-usd 2 --minutes 60
      zubble loop --task "Port the parser" --completion-signal "ALL DONE" --protocol text --max-attempts 5
    """
    report = Report("loop", as_json=as_json)
    from zubble_queue.cli import defaults, looping
    from zubble_queue.cli.loop_order import Order
    from zubble_queue.cli.loop_views import Limits

    settings = options.settings(context)
    each = _budget(max_steps, iteration_tokens, iteration_minutes, max_spend_usd)
    name = model or _only_model(settings)
    order = Order(
        defaults=defaults.task_defaults(
            batch="loop",
            model=name,
            budget=each,
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
            guards=guard or (),
            repetition=repetition,
        ),
        settings=settings,
        endpoint=defaults.endpoint(name, endpoint, price, api_key_env),
        task=task,
        verify=verify,
        signal=_signal(completion_signal, verify),
        plan=_plan(plan),
        work=work,
        limits=Limits(
            max_iterations=max_iterations,
            max_attempts=max_attempts,
            max_tokens=max_tokens or max_iterations * each.max_tokens,
            max_seconds=_seconds(minutes) or float(max_iterations * each.max_wallclock_seconds),
            max_spend_usd=max_spend_usd,
            each=each,
        ),
        anew=anew,
        again=_again(sys.argv[1:]),
    )
    return asyncio.run(looping.loop(order, report))


def _budget(steps: int | None, tokens: int | None, minutes: float | None, usd: float) -> LoopBudget:
    """Of one iteration. Raises BadInput, naming the flags."""
    from pydantic import ValidationError

    from zubble_queue.contracts.record import MOST_USD
    from zubble_queue.contracts.task import LoopBudget
    from zubble_queue.errors import BadInput
    from zubble_queue.formats.lines import sentences

    if not 0 < usd <= MOST_USD:
        raise BadInput([f"--max-spend-usd must be above 0 and at most {MOST_USD:,}, got {usd:g}."])
    flags = {
        "max_iterations": ("--max-steps", steps),
        "max_tokens": ("--iteration-tokens", tokens),
        "max_wallclock_seconds": (
            "--iteration-minutes, in seconds",
            None if minutes is None else round(minutes * 60),
        ),
    }
    given = {name: value for name, (_, value) in flags.items() if value is not None}
    try:
        return LoopBudget(max_spend_usd=min(usd, _MOST_USD_OF_A_RUN), **given)
    except ValidationError as invalid:
        renamed = {name: flag for name, (flag, _) in flags.items()}
        raise BadInput(sentences(invalid, renamed=renamed)) from invalid


def _seconds(minutes: float | None) -> float | None:
    from zubble_queue.errors import BadInput

    if minutes is not None and not 1 / 60 <= minutes <= _MOST_MINUTES:
        raise BadInput(
            [f"--minutes must be at least a second and at most {_MOST_MINUTES:,}, got {minutes:g}."]
        )
    return None if minutes is None else minutes * 60


def _only_model(settings: Settings) -> str:
    """The model of zubble.toml, where it is the only one. Raises BadInput."""
    from zubble_queue.errors import BadInput

    if len(settings.models) != 1:
        known = ", ".join(sorted(settings.models)) or "none"
        raise BadInput([f"Name a model with --model; zubble.toml defines: {known}."])
    return next(iter(settings.models))


def _signal(given: str | None, verify: str | None) -> str | None:
    from zubble_queue.cli.loop_order import DONE
    from zubble_queue.errors import BadInput

    signal = given if given is not None or verify is not None else DONE
    if signal is not None and (not 1 <= len(signal) <= 100 or signal != signal.strip() or "\n" in signal):
        raise BadInput(
            ["--completion-signal must be one line of 1 to 100 characters, without spaces around it."]
        )
    return signal


def _plan(path: str) -> str:
    from zubble_queue.errors import BadInput

    parts = path.split("/")
    if not path or path.startswith("/") or parts[0] == ".zubble" or {"", ".", ".."} & set(parts):
        raise BadInput([f"--plan must be a path inside the folder, not {path!r}."])
    return path


def _again(arguments: Sequence[str]) -> str:
    """The command line, without --anew and without a password in a URL."""
    kept = (argument for argument in arguments if argument != "--anew")
    return shlex.join(["zubble", *(re.sub(r"//[^/@]*@", "//…@", argument) for argument in kept)])
