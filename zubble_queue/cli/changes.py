"""What `zubble batch pause|resume|set|retry|rm` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from zubble_queue.cli import views
from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report
from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.record import TaskState, TaskView
from zubble_queue.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from zubble_queue.contracts.record import BatchView
    from zubble_queue.settings import Settings
    from zubble_queue.stores.redis import RedisStore

OUTCOMES: Final = (
    "verified",
    "failed",
    *(stop for stop in Stop if stop not in {Stop.SUBMITTED, Stop.GAVE_UP}),
)


async def pause(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        await place.store.pause_batch(batch)
        view = await place.store.batch(batch)
    running = view.states.get("running", 0)
    report.say(f"Batch {batch} is paused; {running} tasks still run. Go on with: zubble batch resume {batch}")
    report.result(views.batch_values(view))
    return Exit.DONE


async def resume(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        await place.store.resume_batch(batch)
        view = await place.store.batch(batch)
    report.say(f"Batch {batch} is {view.state}; {view.states.get('queued', 0)} tasks wait.")
    report.result(views.batch_values(view))
    return Exit.DONE


async def tune(settings: Settings, batch: str, given: Mapping[str, Any], report: Report) -> Exit:
    if not given:
        raise BadInput(["Nothing is to be set: give --weight, --priority, --concurrency or --retries."])
    async with installation(settings) as place:
        tuning = await place.store.tune_batch(batch, **given)
        view = await place.store.batch(batch)
    report.say(f"Batch {batch}: {views.tuning_line(tuning)}.")
    report.result(views.batch_values(view))
    return Exit.DONE


async def retry(
    settings: Settings, batch: str, outcomes: Sequence[str], tasks: Sequence[str], report: Report
) -> Exit:
    if bool(outcomes) == bool(tasks):
        raise BadInput(["Say which tasks: give --outcome or --task, and not both."])
    wanted = _expanded(outcomes)
    async with installation(settings) as place:
        _require_rest(await place.store.batch(batch))
        if tasks:
            ids = await _named(place.store, batch, tasks)
        else:
            ids = [id_ async for id_, _, outcome in place.store.endings(batch) if outcome in wanted]
        begun = await place.store.retry_tasks(batch, ids)
        view = await place.store.batch(batch)
    report.say(f"Batch {batch}: {begun} tasks begin a new round.")
    report.result({**views.batch_values(view), "retried": begun})
    return Exit.DONE


def _expanded(outcomes: Sequence[str]) -> set[str]:
    """`loop` means every outcome that begins with `loop:`. Raises UnknownName."""
    wanted: set[str] = set()
    for name in outcomes:
        found = {str(outcome) for outcome in OUTCOMES if name in (outcome, outcome.partition(":")[0])}
        if not found:
            raise UnknownName("outcome", name, OUTCOMES)
        wanted |= found
    return wanted


def _require_rest(view: BatchView) -> None:
    left = view.total - view.sealed
    if view.state == "cancelled" and left:
        raise BadInput([f"Batch {view.info.name!r} is still being cancelled; {left} tasks run: retry later."])


async def _named(store: RedisStore, batch: str, tasks: Sequence[str]) -> list[str]:
    """Raises BadInput with every one that is not sealed; nothing was retried then."""
    views_ = [await store.find(task, batch) for task in tasks]
    if problems := [_not_sealed(view) for view in views_ if view.state is not TaskState.SEALED]:
        raise BadInput(problems)
    return list(dict.fromkeys(view.task_id for view in views_))


def _not_sealed(view: TaskView) -> str:
    return f"Task {view.task_id} ({view.source_id}) is {view.state}; only a sealed task can be retried."


async def rm(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        count = await place.store.remove_batch(batch)
    report.say(f"Batch {batch} and the records of its {count} tasks are gone; its artifacts stay.")
    report.result({"batch": batch, "removed": count})
    return Exit.DONE
