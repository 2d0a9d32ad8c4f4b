"""`zubble batch submit`, in steps: plan, check, submit, and with --wait run and watch."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from zubble_queue.cli import models, needs, networks, views
from zubble_queue.cli.installation import Installation, installation
from zubble_queue.cli.machine import check_endpoints, check_sandboxes, default_workers, key_problems
from zubble_queue.cli.planning import Plan, Work, check_parts, embedded_of, read, require_a_way
from zubble_queue.cli.report import Exit, Report, usd
from zubble_queue.cli.waiting import ended, progress_bar, stopped_by_signals, until_sealed
from zubble_queue.contracts.submission import SubmitReport
from zubble_queue.dispatcher import Dispatcher
from zubble_queue.embedded import Crew
from zubble_queue.embedded.crew import crew_is_at_work, keep_model, worker_environment
from zubble_queue.errors import BadInput, CannotStart
from zubble_queue.feeder import ROLE

if TYPE_CHECKING:
    from zubble_queue.contracts.record import BatchView, WorkerInfo

_TASKS_SHOWN: Final = 10


async def submit(plan: Plan, report: Report) -> Exit:
    """Carry the plan out. Raises OperatorError with nothing created, InfraError with the batch resumable."""
    with progress_bar("reading") as progress:
        work = read(plan, progress)
    embedded = embedded_of(plan)
    if plan.dry_run and embedded is not None and not embedded.folder.has_data:
        return _answer_dry_run(report, work, _all_new(work))
    require_a_way(plan, embedded)
    if embedded is not None and not embedded.alive:
        check_parts(work)
    async with installation(plan.settings, start=plan.wait) as place:
        check_parts(work, await place.store.workers())
        if plan.dry_run:
            return _answer_dry_run(report, work, await _submit(work, place, dry_run=True))
        if not plan.wait:
            await _warn_about_idleness(report, work, place)
            return _answer(report, work, await _submit(work, place))
        return await _run(work, place, report)


async def _submit(work: Work, place: Installation, *, dry_run: bool = False) -> SubmitReport:
    dispatcher = Dispatcher(place.store, place.artifacts)
    with progress_bar("submitting") as progress:
        return await dispatcher.submit(work.submission, dry_run=dry_run, progress=progress.update)


def _all_new(work: Work) -> SubmitReport:
    """What a first submission here would do; nothing has to be started to know it."""
    check_parts(work)
    return SubmitReport(
        batch=work.submission.batch.name,
        total=len(work.parcels),
        created=len(work.parcels),
        existing=0,
        budget_usd=sum(parcel.envelope.budget.max_spend_usd for parcel in work.parcels),
        dry_run=True,
    )


def _values(done: SubmitReport, work: Work) -> dict[str, Any]:
    names = {parcel.envelope.model for parcel in work.parcels}
    return {
        "batch": done.batch,
        "total": done.total,
        "created": done.created,
        "existing": done.existing,
        "budget_usd": done.budget_usd,
        "dry_run": done.dry_run,
        "unpriced": list(models.unpriced(names, work.models)),
    }


def _answer_dry_run(report: Report, work: Work, done: SubmitReport) -> Exit:
    values = _values(done, work)
    tasks = [
        {"task_id": envelope.task_id, "source_id": envelope.source_id, "repeat": envelope.repeat}
        for envelope in (parcel.envelope for parcel in work.parcels)
    ]
    report.say(f"Batch {done.batch}: {done.total} tasks, {done.created} new, {done.existing} existing.")
    report.table(("TASK", "ID", "REPEAT"), (tuple(task.values()) for task in tasks[:_TASKS_SHOWN]))
    if len(tasks) > _TASKS_SHOWN:
        report.say(f"… and {len(tasks) - _TASKS_SHOWN} more.")
    found = networks.reaches(parcel.envelope for parcel in work.parcels)
    for reach, count in found.items():
        report.say(reach.words(count))
    report.say(f"The new tasks may spend at most {usd(done.budget_usd)} together. Nothing was created.")
    for name in values["unpriced"]:
        report.say(f"The price of model {name!r} is unknown; a real submission would be refused.")
    report.result({**values, "tasks": tasks, "networks": networks.values(found)})
    return Exit.DONE


def _answer(report: Report, work: Work, done: SubmitReport) -> Exit:
    report.say(_submitted(done))
    report.say(f"Watch it with: zubble batch watch {done.batch}")
    report.result(_values(done, work))
    return Exit.DONE


def _submitted(done: SubmitReport) -> str:
    if not done.created:
        return f"Batch {done.batch}: all {done.total} tasks are there already; nothing was created."
    budget = usd(done.budget_usd)
    return f"Batch {done.batch}: {done.created} tasks created, {done.existing} existing, at most {budget}."


async def _warn_about_idleness(report: Report, work: Work, place: Installation) -> None:
    """Tasks wait for ever where no worker or no feeder lives; that is allowed, and said."""
    workers = await place.store.workers()
    wanted = Counter(parcel.envelope.need.key for parcel in work.parcels)
    if not workers:
        report.note("Warning: no worker is alive; the tasks wait until one starts.")
    else:
        for line in needs.lines(needs.unserved(wanted, workers)):
            report.note(f"Warning: {line}.")
    for line in networks.ungranted((parcel.envelope for parcel in work.parcels), workers):
        report.note(f"Warning: {line}.")
    for name in _differing(workers, work):
        report.note(f"Warning: a worker defines the model {name!r} otherwise than this machine does.")
    if await place.store.leader(ROLE) is None:
        report.note("Warning: nobody feeds the queue; start `zubble worker` or `zubble dispatcher`.")


def _differing(workers: Sequence[WorkerInfo], work: Work) -> list[str]:
    """Models whose definition here, which decided about prices and levels, is not that of every worker."""
    ours = {name: config.public_hash() for name, config in work.models.items()}
    theirs = {(name, digest) for worker in workers for name, digest in worker.models.items()}
    return sorted({name for name, digest in theirs if ours.get(name, digest) != digest})


async def _run(work: Work, place: Installation, report: Report) -> Exit:
    """Submit, let our own workers or those of the installation work, and wait."""
    planned = await _submit(work, place, dry_run=True)
    if not planned.created and ended(view := await place.store.batch(planned.batch)):
        report.note(_submitted(planned))
        return _finished(report, work, replace(planned, dry_run=False), view)
    ours = place.embedded is not None and not crew_is_at_work(place.embedded.folder)
    if ours:
        await _check_machine(work, place)
    else:
        await _warn_about_idleness(report, work, place)
    done = await _submit(work, place)
    report.note(_submitted(done))
    sealed = await (_with_crew(work, place, report) if ours else _watched(work, place))
    if sealed is None:
        return await _detached(report, place, done, resumable_here=ours)
    return _finished(report, work, done, sealed)


async def _with_crew(work: Work, place: Installation, report: Report) -> BatchView | None:
    """Until every task is sealed, with local workers; None when the user leaves before."""
    assert place.embedded is not None
    folder = place.embedded.folder
    if work.plan.endpoint is not None:
        keep_model(folder, work.plan.defaults.model, work.plan.endpoint)
    environment = worker_environment(place.settings, place.url, work.models, work.plan.slots)
    with Crew(folder, environment, work.plan.workers or default_workers()) as crew:

        def look_after() -> None:
            place.revive()
            crew.check()

        view = await _watched(work, place, look_after)
        if view is None:
            report.note("Handing the running tasks over; Ctrl-C again leaves at once.")
    return view


async def _watched(
    work: Work, place: Installation, look_after: Callable[[], None] = lambda: None
) -> BatchView | None:
    name = work.submission.batch.name
    with stopped_by_signals() as stop, progress_bar(name) as progress:
        return await until_sealed(place.store, name, stop=stop, progress=progress, look_after=look_after)


async def _check_machine(work: Work, place: Installation) -> None:
    """The workers will be here, so what they need can be looked at before anything is created."""
    envelopes = [parcel.envelope for parcel in work.parcels]
    await check_sandboxes(place.settings, networks.sandboxes(envelopes))
    for pool in sorted({envelope.pool for envelope in envelopes} - set(place.settings.worker.pools)):
        raise CannotStart(f"Workers here do not serve pool {pool!r}: add it to worker.pools in zubble.toml.")
    names = {envelope.model for envelope in envelopes}
    used = {name: config for name, config in work.models.items() if name in names}
    if problems := [f"Model {name!r}: {text}" for name, text in key_problems(used)]:
        raise BadInput(problems)
    await check_endpoints(used)


async def _detached(report: Report, place: Installation, done: SubmitReport, *, resumable_here: bool) -> Exit:
    view = await place.store.batch(done.batch)
    again = shlex.join(["zubble", *sys.argv[1:]]) if resumable_here else f"zubble batch watch {done.batch}"
    report.note(f"Detached: {view.sealed} of {view.total} tasks are sealed, and everything is kept.")
    report.note(f"Go on with: {again}")
    report.result({**views.batch_values(view), "detached": True, "resume": again})
    return Exit.DETACHED


def _finished(report: Report, work: Work, done: SubmitReport, view: BatchView) -> Exit:
    for line in views.batch_lines(view):
        report.say(line)
    report.result({**_values(done, work), **views.batch_values(view)})
    return views.exit_code(view)
