"""One campaign: submit, let workers work, inject the faults while they do, wait, and judge."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos import aof
from benchmarks.chaos.audit import histories
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.judge import Verdict, judge
from benchmarks.chaos.options import Options
from benchmarks.chaos.pacing import Course, inject, until_finished
from benchmarks.chaos.plan import SUBMITTING, draw
from benchmarks.chaos.site import Site
from benchmarks.chaos.work import BATCH, task_lines
from zubble_queue.contracts import identity

_SLICE_SHARE: Final = 0.25
"""Of all tasks: what faults submit in the middle of the run, together."""


@dataclass
class Outcome:
    """What a campaign came to."""

    verdict: Verdict
    injected: Counter[str]
    skipped: Counter[str]
    wall_seconds: float
    created_again: int
    """Tasks that submitting everything once more, at the end, created."""
    counters_agree: bool
    """Whether the batch's own counters say what the append-only file says."""
    uninvited: Counter[int] = field(default_factory=Counter)
    """Exit codes of workers that ended although nobody had told them to."""

    @property
    def passed(self) -> bool:
        return self.verdict.clean and not self.created_again and self.counters_agree


async def run(options: Options, folder: Path) -> Outcome:
    """Raises RuntimeError when the installation itself does not come up."""
    plan = draw(options.faults, options.seed, options.only)
    main_file, slices = _files(folder, options.tasks, plan.count(SUBMITTING))
    site = Site.build(options, folder)
    try:
        await site.start()
        site.slices = list(slices)
        await site.submitted(main_file)
        await site.crew.start()
        course = Course()
        await inject(site, plan, FAULTS, course)
        for file in site.slices:
            await site.submitted(file)
        await until_finished(site, options.tasks, course)
        return await _judged(site, course, (main_file, *slices))
    finally:
        await site.stop()


async def _judged(site: Site, course: Course, files: tuple[Path, ...]) -> Outcome:
    wall_seconds, uninvited = course.seconds, Counter(site.crew.uninvited)
    answers = [await site.submitted(file) for file in files]
    calls, counters = await site.endpoint.calls(), await _counters(site)
    await site.stop()
    found = histories(aof.commands(site.server.append_only_files), site.keys)
    expected = [identity.task_id(BATCH, line["id"], 1) for line in task_lines(site.options.tasks)]
    verdict = judge(expected, found, calls, site.crew.attacks)
    return Outcome(
        verdict=verdict,
        injected=course.injected,
        skipped=course.skipped,
        wall_seconds=wall_seconds,
        created_again=sum(answer["created"] for answer in answers),
        counters_agree=counters == _expected_counters(verdict, len(expected)),
        uninvited=uninvited,
    )


async def _counters(site: Site) -> dict[str, int]:
    """The batch's own: those that say how it stands."""
    flat = await site.server.ask("HGETALL", site.keys.batch(BATCH))
    wanted = ("outcome:", "total", "state:sealed", "usage:spend")
    return {name: int(value) for name, value in flat.items() if name.startswith(wanted)}


def _expected_counters(verdict: Verdict, tasks: int) -> dict[str, int]:
    return {
        **{f"outcome:{name}": count for name, count in verdict.outcomes.items()},
        "total": tasks,
        "state:sealed": tasks - len(verdict.lost),
        "usage:spend_micro_usd": verdict.spend_micro_usd,
    }


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
