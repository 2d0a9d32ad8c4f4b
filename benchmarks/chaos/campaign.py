"""One campaign: submit, let workers work, inject the faults while they do, wait, and judge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from redis import exceptions

from benchmarks.chaos import aof
from benchmarks.chaos.audit import histories
from benchmarks.chaos.faults import ASIDE, FAULTS
from benchmarks.chaos.judge import Verdict, judge
from benchmarks.chaos.options import Options
from benchmarks.chaos.plan import draw
from benchmarks.chaos.site import NoTarget, Site
from benchmarks.chaos.work import BATCH, task_lines
from zubble_queue.contracts import identity

_SLICE_SHARE: Final = 0.25
"""Of all tasks: what faults submit in the middle of the run, together."""
_PATIENCE_LEASES: Final = 10
_PATIENCE_SECONDS: Final = 90.0
"""Without another seal for so long, what is not sealed is lost."""
_STALL_LEASES: Final = 2
_POLL_SECONDS: Final = 0.1


@dataclass
class Course:
    """What happened, beside the verdict."""

    injected: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason to count: faults that were drawn and could not be injected."""
    started: float = field(default_factory=time.monotonic)
    wall_seconds: float = 0.0
    uninvited: Counter[int] = field(default_factory=Counter)
    created_again: int = 0
    """Tasks that submitting everything once more, at the end, created."""
    counters_agree: bool = True
    """Whether the batch's own counters say what the append-only file says."""

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:7.1f} s  {text}", file=sys.stderr, flush=True)


async def run(options: Options, folder: Path) -> tuple[Verdict, Course]:
    """Raises RuntimeError when the installation itself does not come up."""
    plan, course = draw(options.faults, options.seed), Course()
    main_file, slices = _files(folder, options.tasks, plan.count("submit_retried"))
    async with _site(options, folder) as site:
        site.slices = list(slices)
        await site.submitted(main_file)
        await site.crew.start()
        course.started = time.monotonic()
        await _inject(site, plan, course)
        for file in site.slices:
            await site.submitted(file)
        await _until_sealed(site, options.tasks, course)
        course.wall_seconds = time.monotonic() - course.started
        return await _judged(site, course, (main_file, *slices))


@contextlib.asynccontextmanager
async def _site(options: Options, folder: Path) -> AsyncIterator[Site]:
    site = await Site.build(options, folder)
    try:
        yield site
    finally:
        await site.stop()


async def _inject(site: Site, plan: list[str], course: Course) -> None:
    aside: list[asyncio.Task[None]] = []
    for number, kind in enumerate(plan):
        await _until_due(site, number / len(plan))
        if kind in site.impossible:
            course.skipped[f"{kind}: {site.impossible[kind]}"] += 1
            continue
        strike = asyncio.create_task(_strike(site, kind, course))
        if kind in ASIDE:
            aside.append(strike)
        else:
            await strike
    await asyncio.gather(*aside)


async def _strike(site: Site, kind: str, course: Course) -> None:
    course.say(f"{kind} …")
    try:
        said = await FAULTS[kind](site)
    except NoTarget as missed:
        course.skipped[f"{kind}: {missed}"] += 1
        course.say(f"{kind} hit nothing: {missed}")
    except (exceptions.RedisError, RuntimeError) as failed:
        course.skipped[f"{kind}: {type(failed).__name__}"] += 1
        course.say(f"{kind} failed: {failed}")
    else:
        course.injected[kind] += 1
        course.say(f"{kind}: {said}")


async def _until_due(site: Site, share: float) -> None:
    """Faults are spread evenly over the seals; where those stall, the next one comes all the same."""
    latest = time.monotonic() + _STALL_LEASES * site.lease
    while time.monotonic() < latest:
        sealed = await site.sealed()
        if sealed is not None and sealed >= share * site.options.tasks:
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _until_sealed(site: Site, tasks: int, course: Course) -> None:
    """Everything, or nothing more for too long."""
    patience = max(_PATIENCE_SECONDS, _PATIENCE_LEASES * site.lease)
    before, since = 0, time.monotonic()
    while before < tasks:
        sealed = await site.sealed() or 0
        if sealed > before:
            before, since = sealed, time.monotonic()
        elif time.monotonic() - since > patience:
            course.say(f"no seal for {patience:g} s; {tasks - before} tasks are left")
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _judged(site: Site, course: Course, files: tuple[Path, ...]) -> tuple[Verdict, Course]:
    course.uninvited = site.crew.uninvited
    answers = [await site.submitted(file) for file in files]
    course.created_again = sum(answer["created"] for answer in answers)
    calls = await site.endpoint.calls()
    counters = await _counters(site)
    await site.stop()
    found = histories(aof.commands(site.server.append_only_files), site.keys)
    expected = [identity.task_id(BATCH, line["id"], 1) for line in task_lines(site.options.tasks)]
    verdict = judge(expected, found, calls, site.crew.attacks)
    outcomes = {f"outcome:{name}": count for name, count in verdict.outcomes.items()}
    course.counters_agree = counters == {
        **outcomes,
        "total": len(expected),
        "state:sealed": len(expected) - len(verdict.lost),
        "usage:spend_micro_usd": verdict.spend_micro_usd,
    }
    return verdict, course


async def _counters(site: Site) -> dict[str, int]:
    """The batch's own: those that say how it stands."""
    flat = await site.server.ask("HGETALL", site.keys.batch(BATCH))
    wanted = ("outcome:", "total", "state:sealed", "usage:spend")
    return {name: int(value) for name, value in flat.items() if name.startswith(wanted)}


def _files(folder: Path, tasks: int, slices: int) -> tuple[Path, tuple[Path, ...]]:
    """The main file, and one for each fault that submits."""
    lines = [json.dumps(line) + "\n" for line in task_lines(tasks)]
    size = int(tasks * _SLICE_SHARE / slices) if slices else 0
    paths = []
    for number in range(slices):
        path = folder / f"slice-{number}.jsonl"
        path.write_text("".join(lines[number * size : (number + 1) * size]))
        paths.append(path)
    main_file = folder / "tasks.jsonl"
    main_file.write_text("".join(lines[slices * size :]))
    return main_file, tuple(paths)
