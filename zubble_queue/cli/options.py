"""Options that several commands share: one word, one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from zubble_queue.contracts.task import LoopBudget
    from zubble_queue.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="A model defined in zubble.toml.")]
Sandbox = Annotated[str | None, typer.Option("--sandbox", metavar="NAME", help="Where commands run.")]
Container = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="NAME|NAMESPACE/POD",
        help="Run in a container or pod that is there (--sandbox attached), where the worker allows it.",
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        "--network", metavar="none|allowlist|open", help="What commands may reach; by default none."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="HOST",
        help="With an allow-list: a host, or *.NAME for all below; repeatable.",
    ),
]
Background = Annotated[
    bool,
    typer.Option("--background", help="What commands leave running, as a server, lives on between them."),
]
MinStrength = Annotated[
    str | None,
    typer.Option(
        "--min-strength",
        metavar="none|namespaces|limits|kernel",
        help="Only workers whose sandbox is that strong run the tasks.",
    ),
]
Image = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="The root file system, by its name or digest."),
]
Level = Annotated[
    str | None, typer.Option("--level", metavar="off|low|medium|xhigh", help="Thinking level of the model.")
]
Temperature = Annotated[float | None, typer.Option("--temperature", help="0 to 2; 0 where it is left out.")]
StopSequences = Annotated[
    list[str] | None,
    typer.Option(
        "--stop-sequences",
        metavar="TEXT...",
        help="Ends a reply of the text protocol; several after each other, or repeated.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="off|read|write|both",
        help="Quote earlier runs of the task type in the prompt, and keep this one for later ones.",
    ),
]
MaxIterations = Annotated[int | None, typer.Option("--max-iterations", help="Steps per task, at most 100.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Tokens per task, at most 500,000.")]
Minutes = Annotated[float | None, typer.Option("--minutes", help="Wall clock per task, at most 60.")]
MaxWallclock = Annotated[
    int | None, typer.Option("--max-wallclock-seconds", help="The same in seconds, at most 3,600.")
]
Repetition = Annotated[
    str | None,
    typer.Option(
        "--repetition",
        metavar="graduated|strict",
        help="What a reply that repeats itself meets; strict also restarts it after a short burst.",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps", envvar="ZUBBLE_MAX_STEPS", help="Cap on model calls of a run; 0, the default, is off."
    ),
]
MaxTurnSecs = Annotated[
    int | None,
    typer.Option(
        "--max-turn-secs",
        envvar="ZUBBLE_MAX_TURN_SECS",
        help="Cap on seconds of a run; 0, the default, is off.",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option("--protocol", metavar="NAME", help="How the model answers: structured, text, repair, swe."),
]
Guard = Annotated[
    list[str] | None,
    typer.Option(
        "--guard", metavar="DETECTOR", help="Its critical signal ends a run as blocked; repeatable."
    ),
]
Ask = Annotated[
    bool,
    typer.Option("--ask", help="A task that asks waits for `zubble task answer`; else nobody is asked."),
]
AskDeadline = Annotated[
    int | None,
    typer.Option(
        "--ask-deadline-seconds",
        metavar="N",
        help="With --ask: how long it waits; a day by default. Then the default answer holds.",
    ),
]
MaxSpend = Annotated[float | None, typer.Option("--max-spend-usd", help="US dollars per task, at most 50.")]
MaxBatch = Annotated[
    float | None, typer.Option("--max-batch-usd", help="US dollars for all tasks of the batch together.")
]
OnCeiling = Annotated[
    str | None,
    typer.Option("--on-ceiling", metavar="pause|seal", help="By default pause, and seal with --wait."),
]
Tenant = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="Under whose ceiling the tasks are paid.")
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries", min=0, max=10, help="Further attempts of a task that ends unverified; none by default."
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=64, help="Local worker processes; 1 or 2 by default.")
]
Slots = Annotated[
    int | None, typer.Option("--slots", min=1, max=1_000, help="Tasks at the same time in each worker.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="For trying: an OpenAI-compatible endpoint that --model names, for the local workers.",
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="VARIABLE", help="The variable that holds the endpoint's key."),
]
Price = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar="free|IN/OUT",
        help="US dollars per million tokens, as in 3/15; free by default on this machine.",
    ),
]
Weight = Annotated[
    float | None, typer.Option("--weight", help="Share of the slots against other batches; 1 by default.")
]
Priority = Annotated[
    int | None, typer.Option("--priority", help="-10 to 10; higher ones go first, and waiting ones rise.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="The most tasks at the same time; 0 for no such limit.")
]
Pool = Annotated[
    str | None, typer.Option("--pool", metavar="NAME", help="Only workers of this pool run the tasks.")
]
TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task id, its beginning, or the id in the user's file.")
]
InBatch = Annotated[str | None, typer.Option("--batch", metavar="NAME", help="Look in this batch only.")]
BatchName = Annotated[str, typer.Argument(metavar="BATCH")]


@dataclass(frozen=True, slots=True)
class Globals:
    """What stands before the command's name."""

    home: Path | None = None
    redis_url: str | None = None


def settings(context: typer.Context, **flags: Any) -> Settings:
    """All settings, with this command line's flags on top. Raises BadInput."""
    from zubble_queue.settings import Settings

    given: Globals = context.obj
    return Settings.load({"home": given.home, "redis_url": given.redis_url, **flags})


def budget(
    *,
    max_iterations: int | None,
    max_tokens: int | None,
    minutes: float | None,
    max_wallclock_seconds: int | None,
    max_spend_usd: float | None,
) -> LoopBudget:
    """The flags as a budget.

    Raises:
        BadInput: One sentence per flag that is out of its bounds.
    """
    from zubble_queue.errors import BadInput

    if minutes is not None and max_wallclock_seconds is not None:
        raise BadInput(["--minutes and --max-wallclock-seconds exclude each other."])
    if minutes is not None:
        max_wallclock_seconds = round(minutes * 60)
    return checked_budget(
        {
            "max_iterations": max_iterations,
            "max_tokens": max_tokens,
            "max_wallclock_seconds": max_wallclock_seconds,
            "max_spend_usd": max_spend_usd,
        }
    )


def checked_budget(values: Mapping[str, Any]) -> LoopBudget:
    """A budget of what was given. Raises BadInput, naming the flags."""
    from pydantic import ValidationError

    from zubble_queue.contracts.task import LoopBudget
    from zubble_queue.errors import BadInput
    from zubble_queue.formats.lines import sentences

    names = {name: f"--{name.replace('_', '-')}" for name in values}
    try:
        return LoopBudget(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as invalid:
        raise BadInput(sentences(invalid, renamed=names)) from invalid


def tuning_changes(
    *, weight: float | None, priority: int | None, concurrency: int | None, retries: int | None
) -> dict[str, float | int]:
    """What was given. Raises BadInput, naming the flags that are out of their bounds."""
    from pydantic import ValidationError

    from zubble_queue.contracts.tuning import Tuning
    from zubble_queue.errors import BadInput
    from zubble_queue.formats.lines import sentences

    values = {"weight": weight, "priority": priority, "concurrency": concurrency, "max_retries": retries}
    flags = {name: f"--{name.removeprefix('max_')}" for name in values}
    given = {name: value for name, value in values.items() if value is not None}
    try:
        Tuning.model_validate(given)
    except ValidationError as invalid:
        raise BadInput(sentences(invalid, renamed=flags)) from invalid
    return given
