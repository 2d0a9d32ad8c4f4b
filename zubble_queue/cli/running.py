"""What `zubble run` does: submit a batch of one, and carry it to its end in this process."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from zubble_queue import registry
from zubble_queue.cli import models, needs, networks, terminal, views
from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.cli.machine import check_endpoints, check_sandboxes
from zubble_queue.cli.memory_folder import MemoryFolder
from zubble_queue.cli.report import Exit, Report
from zubble_queue.cli.tasks import events_of, follow_task, task_lines
from zubble_queue.cli.waiting import stopped_by_signals
from zubble_queue.contracts.envelope import ATTACHED, TaskEnvelope
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.record import BatchInfo, TaskState, TaskView
from zubble_queue.contracts.submission import Parcel, Submission, TaskDefaults
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.errors import BadInput, InfraError, UnknownName
from zubble_queue.formats.detection import format_of
from zubble_queue.formats.lines import Problems, sentences
from zubble_queue.formats.task_line import Builder, TaskLine

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_queue.settings import Settings


REPORT: Final = "report.md"
_DESCRIPTION_CHARS: Final = 500
_LOOK_SECONDS: Final = 0.3


@dataclass(frozen=True)
class Order:
    """A run as asked for on the command line."""

    defaults: TaskDefaults
    settings: Settings
    file: Path | None
    source_id: str | None
    task: str | None
    verify: str | None
    inputs: Sequence[Path]
    endpoint: ModelConfig | None
    work_tree: Path | None
    memory_dir: Path | None = None
    journal: Path | None = None
    report_path: str = REPORT
    """Where the protocol `repair` wants the report, and where a claim without a check must have left one."""
    attended: bool = False
    """Whether somebody sits at the terminal, who is asked (C47)."""


def batch_name(kind: str = "run") -> str:
    """A new one each time: a run is never a repetition of an earlier one."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


async def run(order: Order, report: Report) -> Exit:
    """Raises OperatorError before anything is created, InfraError when the machinery fails three times."""
    log_to_stderr(quiet=True)
    parcel = _parcel(order)
    if order.file is None and order.verify is None:
        report.note(
            f"No --verify: a claim of done is accepted once {order.report_path} is there; "
            "nothing judges the work."
        )
    kept = MemoryFolder(order.memory_dir, parcel.envelope.task_type) if order.memory_dir else None
    if kept:
        kept.entries()
    settings = await narrowed(parcel.envelope, order.defaults, order.settings, order.endpoint)
    info = BatchInfo(name=parcel.envelope.batch, model=parcel.envelope.model, source="zubble run")
    async with installation(settings, start=True) as place:
        if kept:
            await kept.bring(place.store)
        async with terminal.answers(place.store, parcel, report, wanted=order.attended):
            view = await to_its_end(place, info, parcel, lambda event: report.note(views.event_line(event)))
        await _keep_work_tree(order, place, view)
        await _keep_journal(order, place, view)
        if kept:
            await kept.take(place.store)
    for line in task_lines(view, "", []):
        report.say(line)
    report.result(views.task_values(view))
    return _code(view)


async def narrowed(
    envelope: TaskEnvelope, asked: TaskDefaults, settings: Settings, endpoint: ModelConfig | None
) -> Settings:
    """The settings under which only what this task needs has to work here, once all of it was seen to work.

    Raises OperatorError.
    """
    known = dict(settings.models)
    if endpoint is not None:
        known[asked.model] = endpoint
    needs.check_backends([envelope], ())
    models.check_known([envelope], known, ())
    if problems := models.unpriced({envelope.model}, known):
        raise BadInput(problems.values())
    settings = _granting(envelope, asked, settings)
    used = {envelope.model: known[envelope.model]}
    await check_sandboxes(settings, networks.sandboxes([envelope]))
    await check_endpoints(used)
    worker = settings.worker.model_copy(update={"sandboxes": (envelope.sandbox.backend,), "slots": 1})
    return settings.model_copy(update={"worker": worker, "models": MappingProxyType(used)})


def _granting(envelope: TaskEnvelope, asked: TaskDefaults, settings: Settings) -> Settings:
    """Whoever names a container on the command line lets this run, and no other, work in it."""
    container = envelope.sandbox.container
    if container is None or container != asked.sandbox.container:
        return settings
    table = dict(settings.sandboxes.get(ATTACHED, {}))
    table["allow"] = (*table.get("allow", ()), container)
    sandboxes = MappingProxyType({**settings.sandboxes, ATTACHED: MappingProxyType(table)})
    allowed = tuple(dict.fromkeys((*settings.worker.sandboxes, ATTACHED)))
    worker = settings.worker.model_copy(update={"sandboxes": allowed})
    return settings.model_copy(update={"sandboxes": sandboxes, "worker": worker})


async def to_its_end(
    place: Installation, info: BatchInfo, parcel: Parcel, hear: Callable[[Event], None]
) -> TaskView:
    """Submit the task, carry it to its seal in this process, and hand over its events; Ctrl-C cancels it."""
    envelope = parcel.envelope
    await Dispatcher(place.store, place.artifacts).submit(Submission(info, [parcel]))
    with stopped_by_signals() as stop:
        followed = asyncio.create_task(follow_task(place, envelope.task_id, hear, stop=asyncio.Event()))
        cancelling = asyncio.create_task(_cancel_on(stop, place, envelope.task_id))
        try:
            await _attempts(place, place.settings, parcel)
            return await followed
        finally:
            for task in (followed, cancelling):
                task.cancel()
            await asyncio.gather(followed, cancelling, return_exceptions=True)


async def _attempts(place: Installation, settings: Settings, parcel: Parcel) -> None:
    """Attempt after attempt until the seal; another worker may take it, and then we watch."""
    once = registry.load("service", "once")
    given_back, cause = 0, ""
    while given_back < settings.max_attempts:
        view = await place.store.task(parcel.envelope.task_id)
        if view.state is TaskState.SEALED:
            return
        if view.state is TaskState.AWAITING_HUMAN:
            await _until_answered(place, view.task_id)
            continue
        done = await once(settings, parcel.envelope.header(epoch=view.attempt + 1, round_=view.round))
        if done.how not in {"released", "waiting"}:
            return
        given_back, cause = given_back + (done.how == "released"), done.cause
    raise InfraError(
        f"The task was given back {settings.max_attempts} times, the last time because of: {cause}."
    )


async def _until_answered(place: Installation, task_id: str) -> None:
    while (await place.store.task(task_id)).state is TaskState.AWAITING_HUMAN:
        await place.store.lapse()
        await asyncio.sleep(_LOOK_SECONDS)


async def _cancel_on(stop: asyncio.Event, place: Installation, task_id: str) -> None:
    await stop.wait()
    await place.store.cancel_task(task_id)


async def _keep_work_tree(order: Order, place: Installation, view: TaskView) -> None:
    ref = view.ending.artifacts.get("work_tree") if view.ending else None
    if order.work_tree is not None and ref is not None:
        order.work_tree.write_bytes(await place.artifacts.aget(ref))


async def _keep_journal(order: Order, place: Installation, view: TaskView) -> None:
    if order.journal is None:
        return
    tried = [
        event.data["journal"] async for event in events_of(place, view, 0) if event.type == "command_finished"
    ]
    order.journal.parent.mkdir(parents=True, exist_ok=True)
    order.journal.write_text(json.dumps(tried, ensure_ascii=False, indent=1))


def _code(view: TaskView) -> Exit:
    outcome = view.outcome or ""
    if outcome == "verified":
        return Exit.DONE
    if outcome == "cancelled":
        return Exit.DETACHED
    if outcome in {"infra", "stuck"}:
        return Exit.INFRASTRUCTURE
    return Exit.CEILING if outcome.startswith("limit:") else Exit.NOT_ALL_VERIFIED


def _parcel(order: Order) -> Parcel:
    if (order.file is None) == (order.task is None):
        raise BadInput(["Give either a task file, or --task."])
    if order.file is not None:
        return _chosen(order, order.file)
    return _described(order)


def _chosen(order: Order, file: Path) -> Parcel:
    parcels: list[Parcel] = registry.load("format", format_of(file))(file, order.defaults)
    ids = {parcel.envelope.source_id: parcel for parcel in reversed(parcels)}
    if order.source_id is None and len(ids) > 1:
        raise BadInput([f"{file} holds {len(ids)} tasks; choose one with --id."])
    if order.source_id is not None and order.source_id not in ids:
        raise UnknownName("task", order.source_id, list(ids)[-20:])
    return ids[order.source_id] if order.source_id is not None else parcels[0]


def _described(order: Order) -> Parcel:
    """The task of --task, --verify and --input."""
    return parcels_of(
        text_of(order.task or ""),
        order.defaults,
        id="run",
        prompt={"report_path": order.report_path},
        files={path.name: _file(path) for path in order.inputs},
        **done_when(order.verify, order.report_path),
    )[0]


def parcels_of(text: str, defaults: TaskDefaults, *, further: str = "", **fields: Any) -> list[Parcel]:
    """The repeats of a task that is described on the command line.

    Args:
        text: What is to be done; of a long one the whole is in the instructions.
        defaults: What the fields do not say.
        further: Instructions behind it.
        fields: Of a task line.

    Raises:
        BadInput: One sentence per problem.
    """
    whole = text if len(text) > _DESCRIPTION_CHARS else ""
    instructions = "\n\n".join(filter(None, (whole, further)))
    values = {"description": text[:_DESCRIPTION_CHARS], "instructions": instructions, **fields}
    try:
        task = TaskLine.model_validate(values)
    except ValidationError as invalid:
        raise BadInput(sentences(invalid)) from invalid
    problems = Problems(Path("--task"))
    parcels = Builder(defaults, problems).add(1, task)
    problems.raise_any()
    return parcels


def done_when(verify: str | None, report_path: str = REPORT) -> dict[str, Any]:
    """How done is checked, as fields of a task line: without a check of the user's a report is asked for."""
    if verify is not None:
        return {"verify": {"command": verify}}
    return {
        "verify": {"command": f"test -s {shlex.quote(report_path)}"},
        "success_criteria": f"It is done, and {report_path} says what was done and how that was checked.",
    }


def text_of(task: str) -> str:
    """What is to be done, also where a file of text says it: one that is there, or a name without spaces.

    Raises:
        BadInput: It names a file that cannot be read.
    """
    if not task.endswith((".md", ".txt")) or "\n" in task:
        return task
    if not Path(task).exists() and len(task.split()) > 1:
        return task
    try:
        return Path(task).read_text("utf-8")
    except OSError as unreadable:
        raise BadInput([f"--task: {task} cannot be read: {unreadable.strerror}."]) from unreadable
    except UnicodeDecodeError as unreadable:
        raise BadInput([f"--task: {task} is not UTF-8 text."]) from unreadable


def _file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as unreadable:
        raise BadInput([f"{path} cannot be read: {unreadable.strerror}."]) from unreadable
    executable = bool(path.stat().st_mode & 0o100)
    return {"base64": base64.b64encode(data).decode(), "executable": executable}
