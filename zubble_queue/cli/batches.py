"""What `zubble batch watch|ls|show|cancel` do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zubble_queue import scoring
from zubble_queue.cli import needs, views
from zubble_queue.cli.installation import installation
from zubble_queue.cli.report import Exit, Report, usd
from zubble_queue.cli.waiting import progress_bar, stopped_by_signals, until_sealed
from zubble_queue.contracts.ending import MICRO
from zubble_queue.contracts.record import BatchView, TaskState

if TYPE_CHECKING:
    from zubble_queue.settings import Settings
    from zubble_queue.stores.redis import RedisStore


async def watch(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        await place.store.batch(batch)
        with stopped_by_signals() as stop, progress_bar(batch) as progress:
            view = await until_sealed(place.store, batch, stop=stop, progress=progress)
        if view is None:
            view = await place.store.batch(batch)
            again = f"zubble batch watch {batch}"
            report.note(f"Detached: {view.sealed} of {view.total} tasks are sealed. Go on with: {again}")
            report.result({**views.batch_values(view), "detached": True, "resume": again})
            return Exit.DETACHED
    for line in views.batch_lines(view):
        report.say(line)
    report.result(views.batch_values(view))
    return views.exit_code(view)


async def ls(settings: Settings, report: Report, *, awaiting: bool = False) -> Exit:
    async with installation(settings) as place:
        found = [view for view in await place.store.batches() if not awaiting or _awaits_somebody(view)]
    if found:
        report.table(
            ("BATCH", "STATE", "SEALED", "VERIFIED", "SPENT", "MODEL"),
            (
                (
                    view.info.name,
                    view.state,
                    f"{view.sealed}/{view.total}",
                    view.outcomes.get("verified", 0),
                    usd(view.usage.spend_micro_usd / MICRO),
                    view.info.model,
                )
                for view in found
            ),
        )
    elif awaiting:
        report.say("No task waits for a person.")
    else:
        report.say("There are no batches yet: zubble batch submit --help")
    report.result({"batches": [views.batch_values(view) for view in found]})
    return Exit.DONE


def _awaits_somebody(view: BatchView) -> bool:
    return view.states.get(TaskState.AWAITING_HUMAN, 0) > 0


async def show(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        view = await place.store.batch(batch)
        found = await _scores(place.store, view)
        waiting = needs.unserved(await place.store.waiting_by_need(batch), await place.store.workers())
    for line in (*views.batch_lines(view), *views.score_lines(found)):
        report.say(line)
    report.say(f"  {views.tuning_line(view.tuning)}")
    for line in needs.lines(waiting):
        report.say(f"  {line}")
    report.result({**views.batch_values(view), "pass_at_k": views.score_values(found), "unserved": waiting})
    return Exit.DONE


async def _scores(store: RedisStore, view: BatchView) -> list[scoring.Score]:
    """From the counters where every task has one sample, else from the tasks."""
    if view.repeats > 1:
        return scoring.scores([ending[1:] async for ending in store.endings(view.info.name)])
    counted = view.sealed - sum(view.outcomes.get(outcome, 0) for outcome in scoring.NOT_COUNTED)
    passed = view.outcomes.get("verified", 0)
    return [scoring.Score(1, passed / counted, counted)] if counted else []


async def cancel(settings: Settings, batch: str, report: Report) -> Exit:
    async with installation(settings) as place:
        count = await place.store.cancel_batch(batch)
        view = await place.store.batch(batch)
    running = view.states.get("running", 0)
    report.say(f"Batch {batch} is cancelled: {count} tasks; {running} of them are still being stopped.")
    report.result({**views.batch_values(view), "cancelled": count})
    return Exit.DONE
