"""What befalls workers: killed, killed inside a claim or a seal, stopped, evicted, with wrong clocks."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

from benchmarks.chaos.crew import Attack, Worker
from benchmarks.chaos.place import NoTarget, Place, wait_for
from benchmarks.chaos.site import Site
from benchmarks.chaos.tap import Side, Trap, sha_of

STOPPED_LEASES: Final = 1.5
DOZED_LEASES: Final = 0.85
"""Longer than an attempt goes on without a renewal, shorter than its lease."""
SKEW_SECONDS: Final = 600
_TRAP_LEASES: Final = 4
_CALL: Final = b'"type":"call_started"'
_DRAIN_SECONDS: Final = 40.0
"""Enough for a worker that is told to end: it drains for two seconds and hands over."""


async def killed(site: Place) -> str:
    """SIGKILL a worker that is at work."""
    worker = await _busy_one(site)
    site.crew.kill(worker, "worker_killed")
    return f"worker at place {worker.place}"


async def killed_in_claim(site: Site) -> str:
    """SIGKILL with its claim on the wire: before it takes effect, or before its answer comes back."""
    return await _killed_in(site, "claim", "killed_in_claim")


async def killed_in_seal(site: Site) -> str:
    """The same with a seal."""
    return await _killed_in(site, "seal", "killed_in_seal")


async def stopped(site: Place) -> str:
    """SIGSTOP for longer than a lease, then SIGCONT."""
    worker = await _busy_one(site)
    worker.send(signal.SIGSTOP)
    await _asleep(site, worker, "worker_stopped", STOPPED_LEASES)
    return f"worker at place {worker.place}"


async def dozed(site: Place) -> str:
    """SIGSTOP for most of a lease: whoever wakes up holds it still, and has to find out first."""
    worker = await _busy_one(site)
    worker.send(signal.SIGSTOP)
    await _asleep(site, worker, "worker_dozed", DOZED_LEASES)
    return f"worker at place {worker.place}"


async def stopped_before_call(site: Site) -> str:
    """The same at the worst moment: the call is reserved and announced, and about to be made."""
    trap = Trap(
        *(sha_of("append"), "reply"),
        lambda pid: site.crew.by_pid(pid).send(signal.SIGSTOP),
        wants=site.crew.knows,
        mark=_CALL,
    )
    if not await site.tap.catch(trap, _TRAP_LEASES * site.lease):
        raise NoTarget("no call was announced through the tap within four leases")
    trap.released.set()
    worker = site.crew.by_pid(trap.caught)
    await _asleep(site, worker, "stopped_before_call", STOPPED_LEASES)
    return f"worker at place {worker.place}"


async def short_grace(site: Place) -> str:
    """SIGTERM, and SIGKILL before it had the time to hand everything over."""
    worker = await _busy_one(site)
    grace = site.chance.uniform(0.2, 3.0)
    await site.crew.end(worker, "short_grace", grace)
    return f"worker at place {worker.place}, {grace:.1f} s"


async def clocks_apart(site: Place) -> str:
    """Two workers leave; those that take their places have clocks ten minutes ahead and behind."""
    leaving = site.chance.sample(site.crew.standing(), 2) if len(site.crew.standing()) > 1 else []
    if not leaving:
        raise NoTarget("fewer than two workers stood")
    pairs = zip(leaving, (SKEW_SECONDS, -SKEW_SECONDS), strict=True)
    await asyncio.gather(
        *(
            site.crew.exchange(worker, "clocks_apart", skew_seconds=skew, grace_seconds=_DRAIN_SECONDS)
            for worker, skew in pairs
        )
    )
    return f"places {leaving[0].place} and {leaving[1].place}"


async def _killed_in(site: Site, script: str, kind: str) -> str:
    side: Side = site.chance.choice(("request", "reply"))
    trap = Trap(
        *(sha_of(script), side),
        lambda pid: site.crew.kill(site.crew.by_pid(pid), kind),
        wants=site.crew.knows,
    )
    if not await site.tap.catch(trap, _TRAP_LEASES * site.lease):
        raise NoTarget(f"no {script} came through the tap within four leases")
    return f"{script} withheld" if side == "request" else f"{script} done, its answer withheld"


async def _asleep(site: Place, worker: Worker, kind: str, leases: float) -> None:
    """Let a stopped worker sleep, and wake it up."""
    began = time.time()
    worker.held = True
    try:
        await asyncio.sleep(leases * site.lease)
    finally:
        worker.send(signal.SIGCONT)
        site.crew.attacks.append(Attack(kind, worker.pid, began, time.time()))
        worker.held = False


async def _busy_one(site: Place) -> Worker:
    async def look() -> list[Worker]:
        pids = await site.busy()
        return [worker for worker in site.crew.standing() if worker.pid in pids]

    return site.chance.choice(await wait_for(look, 2 * site.lease, "no worker had a task"))
