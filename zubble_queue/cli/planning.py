"""What a submission will do: its file read, its models and its way to a worker checked, nothing created."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zubble_queue import registry
from zubble_queue.cli import models, needs
from zubble_queue.cli.installation import TWO_WAYS
from zubble_queue.cli.waiting import Progress
from zubble_queue.contracts import identity
from zubble_queue.contracts.record import BatchInfo, OnCeiling
from zubble_queue.contracts.submission import Parcel, Submission, TaskDefaults
from zubble_queue.contracts.tuning import Tuning
from zubble_queue.embedded import Embedded
from zubble_queue.embedded.crew import crew_is_at_work, kept_models
from zubble_queue.errors import BadInput, CannotStart
from zubble_queue.formats.detection import format_of

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.contracts.record import WorkerInfo
    from zubble_queue.settings import Settings

_NO_LOCAL_WORKERS: Final = (
    "--endpoint, --workers and --slots are for local workers; with a Redis of your own, "
    "define the model in the zubble.toml of its workers."
)
_NO_OWN_WORKERS: Final = (
    "--endpoint defines a model for workers that this command starts: give it with --wait, "
    "and stop `zubble up` first; or define the model in zubble.toml."
)
_SUFFIXES: Final = re.compile(r"(\.jsonl|\.json|\.ndjson)?(\.gz)?$")


@dataclass(frozen=True)
class Plan:
    """A submission as asked for on the command line."""

    files: tuple[Path, ...]
    format: str
    defaults: TaskDefaults
    """Its batch name is the one given, or empty."""
    settings: Settings
    wait: bool = False
    dry_run: bool = False
    limit: int | None = None
    workers: int | None = None
    slots: int | None = None
    max_batch_usd: float | None = None
    on_ceiling: OnCeiling = "pause"
    tuning: Mapping[str, float | int] = field(default_factory=dict)
    """Fields of Tuning that were given."""
    endpoint: ModelConfig | None = None
    """What --endpoint defines under the name of --model."""


@dataclass(frozen=True)
class Work:
    """A plan whose file has been read."""

    plan: Plan
    submission: Submission
    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    """All that are defined on this machine."""

    @property
    def parcels(self) -> Sequence[Parcel]:
        return self.submission.parcels


def read(plan: Plan, progress: Progress) -> Work:
    """Read the files. Raises BadInput with every problem of every file."""
    name = plan.defaults.batch or _default_name(plan)
    defaults = replace(plan.defaults, batch=name)
    info = BatchInfo(
        name=name,
        tenant=defaults.tenant,
        model=defaults.model,
        source=", ".join(map(_name, plan.files)),
        labels=defaults.labels,
        max_spend_usd=plan.max_batch_usd,
        on_ceiling=plan.on_ceiling,
        tuning=Tuning.model_validate(plan.tuning),
    )
    parcels = _parcels(plan, defaults, progress)
    return Work(plan, Submission(info, parcels, plan.tuning), _local_models(plan))


def _parcels(plan: Plan, defaults: TaskDefaults, progress: Progress) -> list[Parcel]:
    parcels: list[Parcel] = []
    problems: list[str] = []
    for number, file in enumerate(plan.files):
        progress.update(number, len(plan.files), f"{len(parcels)} tasks")
        try:
            form = format_of(file) if plan.format == "auto" else plan.format
            parcels += _first(registry.load("format", form)(file, defaults), plan.limit)
        except BadInput as wrong:
            problems += wrong.problems
    if problems:
        raise BadInput(problems)
    return parcels


def _first(parcels: Sequence[Parcel], tasks: int | None) -> list[Parcel]:
    """Every repeat of the first so many tasks."""
    kept = set(list(dict.fromkeys(parcel.envelope.source_id for parcel in parcels))[:tasks])
    return [parcel for parcel in parcels if parcel.envelope.source_id in kept]


def _name(file: Path) -> str:
    """Without its folder; `.` and `..` have one of their own."""
    return file.name if file.name not in {"", ".."} else file.resolve().name


def _default_name(plan: Plan) -> str:
    """Another model, level or budget is another batch; another file of the same name is not."""
    defaults = plan.defaults
    return identity.default_batch_name(
        _SUFFIXES.sub("", _name(plan.files[0])),
        defaults.model,
        "zubble",
        defaults.level,
        str(defaults.temperature),
        defaults.memory,
        defaults.pool,
        defaults.sandbox.model_dump_json(exclude_defaults=True),
        defaults.budget.model_dump_json(),
        *_caps(defaults),
    )


def _caps(defaults: TaskDefaults) -> list[str]:
    """Nothing where there are none, so that a name given before there were caps stays."""
    caps = {
        "protocol": "" if defaults.protocol == "structured" else defaults.protocol,
        "max_steps": defaults.max_steps,
        "max_turn_secs": defaults.max_turn_secs,
        "guards": defaults.guards,
        "repetition": "" if defaults.repetition == "graduated" else defaults.repetition,
    }
    return [f"{name}={value}" for name, value in caps.items() if value]


def _local_models(plan: Plan) -> dict[str, ModelConfig]:
    found = dict(plan.settings.models)
    if (embedded := embedded_of(plan)) is not None:
        found = {**kept_models(embedded.folder), **found}
    if plan.endpoint is not None:
        found[plan.defaults.model] = plan.endpoint
    return found


def embedded_of(plan: Plan) -> Embedded | None:
    if plan.settings.redis_url is not None:
        return None
    return Embedded(plan.settings.embedded_folder)


def require_a_way(plan: Plan, embedded: Embedded | None) -> None:
    """Raises CannotStart when nobody would ever run the tasks, or --endpoint cannot reach who does."""
    if embedded is None:
        if plan.endpoint is not None or plan.workers is not None or plan.slots is not None:
            raise BadInput([_NO_LOCAL_WORKERS])
        return
    crew = crew_is_at_work(embedded.folder)
    if plan.endpoint is not None and (crew or not plan.wait):
        raise BadInput([_NO_OWN_WORKERS])
    if not plan.wait and not plan.dry_run and not crew:
        raise CannotStart(TWO_WAYS)


def check_parts(work: Work, workers: Sequence[WorkerInfo] = ()) -> None:
    """Sandboxes and models must be known.

    Raises:
        OperatorError: One that nobody knows, a level that a model does not accept, or an unknown price.
    """
    envelopes = [parcel.envelope for parcel in work.parcels]
    needs.check_backends(envelopes, workers)
    models.check_known(envelopes, work.models, workers)
    problems = models.unpriced({envelope.model for envelope in envelopes}, work.models)
    if problems and not work.plan.dry_run:
        raise BadInput(problems.values())
