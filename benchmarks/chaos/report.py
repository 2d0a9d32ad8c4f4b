"""What a campaign found, for programs and for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.chaos.campaign import Outcome
from benchmarks.chaos.judge import Verdict, percentile
from benchmarks.chaos.options import Options

_MICRO = 1_000_000
_SHOWN = 5


def values(options: Options, outcome: Outcome) -> dict[str, Any]:
    """The JSON object."""
    verdict = outcome.verdict
    return {
        "schema": "zubble.chaos/1",
        "tasks": options.tasks,
        "faults": sum(outcome.injected.values()),
        "by_fault": dict(sorted(outcome.injected.items())),
        "skipped": dict(outcome.skipped),
        "lost": len(verdict.lost),
        "sealed_twice": len(verdict.sealed_twice),
        "overlapping_leases": len(verdict.overlapping),
        "stale_writes": len(verdict.stale_writes),
        "spend_difference_usd": verdict.unpaid_micro_usd / _MICRO,
        "over_charged_usd": verdict.over_charged_micro_usd / _MICRO,
        "spend_usd": verdict.spend_micro_usd / _MICRO,
        "books_wrong": len(verdict.books_wrong),
        "created_again": outcome.created_again,
        "counters_agree": outcome.counters_agree,
        "recovery_p95_seconds": _rounded(percentile(verdict.recoveries, 0.95)),
        "recoveries": len(verdict.recoveries),
        "recovery_p95_seconds_server_away": _rounded(percentile(verdict.slow_recoveries, 0.95)),
        "recoveries_server_away": len(verdict.slow_recoveries),
        "attempts": verdict.attempts,
        "attempts_charged": sum(verdict.charged.values()),
        "agents_restarted": sum(verdict.started_over.values()),
        "started_over": dict(sorted(verdict.started_over.items())),
        "charged": {kind: count for kind, count in sorted(verdict.charged.items()) if count},
        "workers_died_uninvited": {str(code): count for code, count in outcome.uninvited.items()},
        "outcomes": dict(verdict.outcomes),
        "wall_seconds": round(outcome.wall_seconds, 1),
        "lease_seconds": options.lease,
        "seed": options.seed,
        "server": options.server,
        "fsync": options.fsync,
    }


def show(found: dict[str, Any], verdict: Verdict) -> None:
    """A table on standard error, and the first of whatever is wrong."""
    console = Console(stderr=True)
    table = Table("", "", title="Chaos")
    for name, value in found.items():
        table.add_row(name, str(value))
    console.print(table)
    for name in ("lost", "sealed_twice", "overlapping", "stale_writes", "books_wrong", "unpaid"):
        for line in list(getattr(verdict, name))[:_SHOWN]:
            console.print(f"{name}: {line}", style="bold red", highlight=False)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
