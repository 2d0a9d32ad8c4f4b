"""A day of submissions against the rule that decides how many workers there are, and against others.

    python -m benchmarks.autoscale [--workers 1,10,100,1000,10000] [--plot FOLDER] [--json]

Nothing is started: pods, agents and the autoscaler are simulated, the number comes from the product's own
functions, the autoscaler does with it what KEDA's and Kubernetes' documentation says (`autoscaler.py`).
Compared are our rule, our rule when the pods that go are not told apart, and a rule that reads only the
waiting list. All see the same submissions, made to keep a share of the most workers' slots busy over the day.
Passes (exit code 0) when under our rule every task is sealed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.autoscale.autoscaler import Settings
from benchmarks.autoscale.day import batches
from benchmarks.autoscale.drawing import Line, svg
from benchmarks.autoscale.simulation import Simulation, World, days

_POINTS: Final = 200
_COLUMNS: Final = (
    "rule",
    "pod_hours",
    "usd",
    "busy_share",
    "wait_seconds_median",
    "wait_seconds_p95",
    "handed_over",
    "repeated_hours",
    "lost_hours_if_killed",
)


def main(arguments: Sequence[str]) -> int:
    given = _arguments(arguments)
    world = World(given.slots, given.start, given.handover, given.drain, given.seed)
    sizes = []
    for workers in given.workers:
        load = batches(workers * given.slots, given.load, given.seed)
        settings = Settings(workers, window_seconds=given.window, down_share=given.down_share)
        simulations = list(days(world, settings, load))
        results = [_priced(simulation.result(), given.usd) for simulation in simulations]
        sizes.append({"workers": workers, "batches": len(load), "rules": results})
        if not given.json:
            _show(workers, results)
        if given.plot:
            given.plot.mkdir(parents=True, exist_ok=True)
            (given.plot / f"autoscale-{workers}.svg").write_text(_plot(workers, simulations, given.usd))
    if given.json:
        print(json.dumps({"schema": "zubble.autoscale/1", "settings": _settings(given), "sizes": sizes}))
    return 0 if all(size["rules"][0]["tasks_left"] == 0 for size in sizes) else 1


def _priced(result: dict[str, Any], usd_an_hour: float) -> dict[str, Any]:
    return {**result, "usd": round(result["pod_hours"] * usd_an_hour, 2)}


def _show(workers: int, results: Sequence[dict[str, Any]]) -> None:
    print(f"\nAt most {workers:,} workers; {results[0]['tasks']:,} tasks")
    widths = [max(len(name), *(len(str(result[name])) for result in results)) for name in _COLUMNS]
    for row in (dict(zip(_COLUMNS, _COLUMNS, strict=True)), *results):
        cells = [str(row[name]).rjust(width) for name, width in zip(_COLUMNS[1:], widths[1:], strict=True)]
        print("  ".join([str(row["rule"]).ljust(widths[0]), *cells]))


def _plot(workers: int, simulations: Sequence[Simulation], usd_an_hour: float) -> str:
    def lines(measure: str, factor: float = 1.0) -> dict[str, Line]:
        return {
            simulation.result()["rule"]: _thinned(simulation, measure, factor) for simulation in simulations
        }

    return svg(
        f"A day with at most {workers:,} workers",
        {
            "backlog: runnable tasks that wait": lines("backlog"),
            "pods": lines("pods"),
            "cost: USD so far": lines("pod_hours", usd_an_hour),
            "wasted work: slot hours done twice so far": lines("repeated_hours"),
        },
    )


def _thinned(simulation: Simulation, measure: str, factor: float) -> Line:
    samples = simulation.samples
    step = max(1, len(samples) // _POINTS)
    return [(sample.time / 3_600, getattr(sample, measure) * factor) for sample in samples[::step]]


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(given).items() if name not in {"json", "plot"}}


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoscale")
    sizes = [1, 10, 100, 1_000, 10_000]
    parser.add_argument("--workers", type=_numbers, default=sizes, help="the most there may be, by commas")
    parser.add_argument("--slots", type=int, default=4, help="of a worker")
    parser.add_argument("--load", type=float, default=0.3, help="share of all slots the day's tasks fill")
    parser.add_argument("--start", type=float, default=60.0, help="seconds until a new pod takes tasks")
    parser.add_argument("--drain", type=float, default=20.0, help="seconds agents may go on after SIGTERM")
    parser.add_argument("--handover", type=float, default=30.0, help="seconds a handed-over agent repeats")
    parser.add_argument("--window", type=float, default=300.0, help="seconds before pods go")
    parser.add_argument("--down-share", type=float, default=1.0, help="of the pods that may go in a minute")
    parser.add_argument("--usd", type=float, default=0.20, help="of a pod for an hour")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
