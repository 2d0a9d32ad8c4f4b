"""What became of each task, told by the endpoint's log alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.chaos.endpoint import Call
from benchmarks.chaos.judge import overlapping


@dataclass(frozen=True, slots=True)
class Verdict:
    lost: int
    """Tasks without a whole run."""
    run_twice: int
    """Tasks with more than one whole run."""
    overlapping: int
    """Tasks of which two runs were at the endpoint at once, or an old one after a newer had begun."""
    runs: int
    """Whole or not."""
    repeated_micro_usd: float
    """Paid beyond the first whole run of each task."""


def judge(turns: Mapping[str, int], calls: Sequence[Call]) -> Verdict:
    """From task to the replies that make a whole run."""
    runs: dict[str, dict[str, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for call in calls:
        runs[call.task_id][call.attempt].append(call)
    whole = {task: [run for run in runs[task].values() if _is_whole(run, turns[task])] for task in turns}
    spent = sum(call.micro_usd for call in calls)
    needed = sum(_cost(found[0]) for found in whole.values() if found)
    return Verdict(
        lost=sum(not found for found in whole.values()),
        run_twice=sum(len(found) > 1 for found in whole.values()),
        overlapping=len(overlapping(calls)),
        runs=sum(map(len, runs.values())),
        repeated_micro_usd=spent - needed,
    )


def _is_whole(run: Iterable[Call], turns: int) -> bool:
    return len({call.turn for call in run if call.whole}) == turns


def _cost(run: Iterable[Call]) -> float:
    return sum(call.micro_usd for call in run)
