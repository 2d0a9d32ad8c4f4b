"""Plain Celery under the faults of script/chaos: how many tasks are lost, and how many run more than once.

    python -m benchmarks.celery_baseline [--tasks N] [--faults M] [--seed S] [--lease SECONDS] [--json]

The options are those of script/chaos. It has no exit code for what it finds: it is there to be compared with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.celery_baseline.judge import judge
from benchmarks.celery_baseline.place import FAULTS, Baseline
from benchmarks.chaos.ground import on_ground
from benchmarks.chaos.options import Options
from benchmarks.chaos.pacing import Course, inject, until_finished
from benchmarks.chaos.plan import SUBMITTING, draw
from benchmarks.chaos.work import replies_of, task_lines

_SLICE_SHARE = 0.25
_MICRO = 1_000_000


def main() -> int:
    options = Options.read(None, program="python -m benchmarks.celery_baseline", description=__doc__)
    found = on_ground(options, run)
    print(json.dumps(found) if options.json else "\n".join(f"{name}: {found[name]}" for name in found))
    return 0


async def run(options: Options, folder: Path) -> dict[str, Any]:
    """Raises RuntimeError when the installation itself does not come up."""
    plan, place = draw(options.faults, options.seed, options.only), Baseline.build(options, folder)
    size = int(options.tasks * _SLICE_SHARE / max(plan.count(SUBMITTING), 1))
    place.slices = [range(at * size, (at + 1) * size) for at in range(plan.count(SUBMITTING))]
    try:
        await place.start()
        place.publish(range(size * len(place.slices), options.tasks))
        await place.crew.start()
        course = Course()
        await inject(place, plan, FAULTS, course)
        for numbers in place.slices:
            place.publish(numbers)
        await until_finished(place, options.tasks, course)
        wall_seconds = course.seconds
        turns = {line["id"]: replies_of(line) for line in task_lines(options.tasks)}
        verdict = judge(turns, await place.endpoint.calls())
    finally:
        await place.stop()
    return {
        "schema": "zubble.celery-baseline/1",
        "tasks": options.tasks,
        "faults": sum(course.injected.values()),
        "by_fault": dict(sorted(course.injected.items())),
        "skipped": dict(course.skipped),
        "lost": verdict.lost,
        "run_twice": verdict.run_twice,
        "overlapping": verdict.overlapping,
        "runs": verdict.runs,
        "repeated_usd": round(verdict.repeated_micro_usd / _MICRO, 6),
        "wall_seconds": round(wall_seconds, 1),
        "lease_seconds": options.lease,
        "seed": options.seed,
        "server": options.server,
        "fsync": options.fsync,
    }


if __name__ == "__main__":
    raise SystemExit(main())
