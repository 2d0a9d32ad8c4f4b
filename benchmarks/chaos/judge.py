"""The verdict: what the endpoint saw and what the server was told, held against each other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.chaos.audit import History, Lease
from benchmarks.chaos.crew import Attack
from benchmarks.chaos.endpoint import Call

_MICRO = 1_000_000
_AWAY_SECONDS = 5.0
"""A server that was away for less delays nobody's recovery."""


@dataclass(slots=True)
class Verdict:
    """Counts; all but the last four groups must be 0."""

    lost: list[str]
    """Tasks that were accepted and not sealed."""
    sealed_twice: list[str]
    overlapping: list[str]
    stale_writes: list[str]
    unpaid: dict[str, float]
    """Micro-USD that the endpoint counted and the books do not hold, by call."""
    books_wrong: list[str]
    """Tasks whose record is not the sum of its calls, or that have an open call after the seal."""
    over_charged_micro_usd: float
    spend_micro_usd: int
    outcomes: Counter[str]
    attempts: int
    started_over: Counter[str] = field(default_factory=Counter)
    """Leases that did not last to a seal, by what had befallen their worker or else the server."""
    charged: Counter[str] = field(default_factory=Counter)
    """Those of them that counted against their task's attempts."""
    recoveries: list[float] = field(default_factory=list)
    """Seconds from the SIGKILL of a worker to the next claim of each task it held, the server being there."""
    slow_recoveries: list[float] = field(default_factory=list)
    """The same where the server was away or silent meanwhile, for more than five seconds."""

    @property
    def unpaid_micro_usd(self) -> float:
        return sum(self.unpaid.values())

    @property
    def clean(self) -> bool:
        broken = (self.lost, self.sealed_twice, self.overlapping, self.stale_writes, self.books_wrong)
        return not any(broken) and not self.unpaid


def judge(
    expected: Iterable[str], tasks: Mapping[str, History], calls: Sequence[Call], attacks: Sequence[Attack]
) -> Verdict:
    """All of it.

    Args:
        expected: Ids of the tasks that were submitted.
        tasks: From the audit.
        calls: From the endpoint's log.
        attacks: What was done, to whom and when.
    """
    unpaid, over = money(tasks, calls)
    verdict = Verdict(
        lost=[task_id for task_id in expected if task_id not in tasks or not tasks[task_id].sealed],
        sealed_twice=[task.task_id for task in tasks.values() if _sealed_twice(task)],
        overlapping=[*overlapping(calls), *(task.task_id for task in tasks.values() if task.overlapping)],
        stale_writes=[f"{task.task_id}: {write}" for task in tasks.values() for write in task.stale],
        unpaid=unpaid,
        books_wrong=[task.task_id for task in tasks.values() if not _books_agree(task)],
        over_charged_micro_usd=over,
        spend_micro_usd=sum(task.spend for task in tasks.values()),
        outcomes=Counter(task.seals[-1].outcome for task in tasks.values() if task.seals),
        attempts=sum(len(task.leases) for task in tasks.values()),
    )
    for task in tasks.values():
        _count_what_was_started_over(task, attacks, verdict)
        _time_recoveries(task, attacks, verdict)
    return verdict


def overlapping(calls: Iterable[Call]) -> list[str]:
    """Tasks of which two attempts were at the endpoint at once, or an old one after a newer had begun."""
    by_task: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_task[call.task_id].append(call)
    return [task_id for task_id, found in by_task.items() if _overlap(found)]


def money(tasks: Mapping[str, History], calls: Iterable[Call]) -> tuple[dict[str, float], float]:
    """Micro-USD that the endpoint counted and nobody booked, by call; and the sum the other way round."""
    counted: dict[tuple[str, str], float] = defaultdict(float)
    for call in calls:
        counted[call.task_id, call.call_id] += call.micro_usd
    booked = {
        (task.task_id, call_id): max(charge, 0)
        for task in tasks.values()
        for call_id, charge in task.calls.items()
    }
    unpaid = {
        f"{task_id} {call_id}": missing
        for (task_id, call_id), cost in counted.items()
        if (missing := cost - booked.get((task_id, call_id), 0)) > 0
    }
    over = sum(max(charge - math.ceil(counted[key]), 0) for key, charge in booked.items())
    return unpaid, float(over)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest rank; None of nothing."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _sealed_twice(task: History) -> bool:
    return any(times > 1 for times in Counter(seal.round for seal in task.seals).values())


def _books_agree(task: History) -> bool:
    return task.spend == sum(task.calls.values()) and -1 not in task.calls.values()


def _overlap(calls: list[Call]) -> bool:
    """Attempts must follow each other: every call of one ends before the first of the next begins."""
    spans: dict[str, tuple[float, float]] = {}
    for call in calls:
        began, ended = spans.get(call.attempt, (call.began, call.ended))
        spans[call.attempt] = min(began, call.began), max(ended, call.ended)
    return any(later[0] < earlier[1] for earlier, later in pairwise(sorted(spans.values())))


def _count_what_was_started_over(task: History, attacks: Sequence[Attack], verdict: Verdict) -> None:
    for lease in task.leases:
        if lease.end in {"lost", "released"}:
            cause = _cause(lease, attacks)
            verdict.started_over[cause] += 1
            verdict.charged[cause] += lease.charged


def _cause(lease: Lease, attacks: Sequence[Attack]) -> str:
    """What befell its worker; else what last befell the server while it was held; else nothing."""
    on_worker = [attack for attack in attacks if attack.pid == lease.pid]
    on_server = [attack for attack in attacks if not attack.pid]
    for suspects in (on_worker, on_server):
        touching = [attack.kind for attack in suspects if attack.touches(lease.claimed, lease.ended)]
        if touching:
            return touching[-1]
    return "nothing"


def _time_recoveries(task: History, attacks: Sequence[Attack], verdict: Verdict) -> None:
    silences = [silence for silence in attacks if not silence.pid and silence.seconds > _AWAY_SECONDS]
    for lease, following in pairwise(task.leases):
        killed = next((attack for attack in attacks if attack.fatal and attack.pid == lease.pid), None)
        if killed is None or lease.end == "sealed" or not lease.claimed <= killed.ended <= following.claimed:
            continue
        seconds = following.claimed - killed.ended
        disturbed = any(silence.touches(killed.ended, following.claimed) for silence in silences)
        (verdict.slow_recoveries if disturbed else verdict.recoveries).append(seconds)
