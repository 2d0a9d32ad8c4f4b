"""Many agents that wait for a slow endpoint, in one worker: memory of each, heartbeats, event loop.

    python -m benchmarks.scale.agents [--agents 500] [--json]

Each agent has an open bubblewrap sandbox and a model call that never answers. Reported: what the worker's own
memory (PSS) grew by, per agent, without the sandboxes, and the memory of the sandboxes' own processes; the
processor time that waiting took; the least time any lease had left, of its 60 seconds, in half a minute of
watching (45 is what renewal every 15 seconds aims at); the worst delay of the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.site import Footprint, Site, below, pss_kib, until
from zubble_queue.contracts.record import TaskState

WATCHED_SECONDS: Final = 40.0
LEASE_SECONDS: Final = 60.0
SILENT: Final = {"rules": [{"turns": [{"text": "x", "fault": {"kind": "stall"}}]}]}


async def measure(agents: int, folder: Path) -> dict[str, Any]:
    site = Site(folder, SILENT, slots=agents)
    await site.start()
    try:
        await until(site.store.workers, 60, "the worker is there")
        idle = Footprint.of(site.worker)
        began = time.monotonic()
        await site.submit("many", [f"t{number}" for number in range(agents)])
        await until(lambda: _waiting(site, agents), 30 + 3 * agents, "all agents wait")
        opened = time.monotonic() - began
        before, watching = Footprint.of(site.worker), time.monotonic()
        least = await _least_left(site)
        busy, watched = Footprint.of(site.worker), time.monotonic() - watching
        sandboxes = below(site.worker)
        sandbox_kib = pss_kib(sandboxes)
        batch = await site.store.batch("many")
        await site.store.cancel_batch("many")
        await until(lambda: _sealed(site, agents), 120 + agents, "all agents are cancelled")
        after = Footprint.of(site.worker)
    finally:
        await site.stop()
    return {
        "agents": agents,
        "opening_seconds": round(opened, 1),
        "worker_pss_mib_idle": round(idle.pss_kib / 1024, 1),
        "worker_pss_mib_busy": round(busy.pss_kib / 1024, 1),
        "worker_mib_per_agent": round((busy.pss_kib - idle.pss_kib) / 1024 / agents, 3),
        "sandbox_mib_per_agent": round(sandbox_kib / 1024 / agents, 3),
        "sandbox_processes_per_agent": round(len(sandboxes) / agents, 1),
        "core_share_while_waiting": round((busy.cpu_seconds - before.cpu_seconds) / watched, 3),
        "worker_pss_mib_after": round(after.pss_kib / 1024, 1),
        "fds": [idle.fds, busy.fds, after.fds],
        "threads": [idle.threads, busy.threads, after.threads],
        "least_lease_left_seconds": round(least, 1),
        "requeues": batch.requeues,
        "worst_loop_lag_seconds": site.worst_lag_seconds(),
    }


async def _waiting(site: Site, agents: int) -> bool:
    """Whether every agent has asked the endpoint."""
    if (await site.store.batch("many")).states.get("running", 0) < agents:
        return False
    ids = [view.task_id async for view in site.store.tasks("many")]
    for task_id in ids:
        events = await site.store.events(task_id)
        if not any(event.type == "call_started" for event in events):
            return False
    return True


async def _least_left(site: Site) -> float:
    """The least that any lease had left while we watched, in seconds."""
    least, end = LEASE_SECONDS, time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < end:
        views = [view async for view in site.store.tasks("many", state=TaskState.RUNNING)]
        least = min([least, *(view.lease_until - time.time() for view in views if view.lease_until)])
        await asyncio.sleep(2.0)
    return least


async def _sealed(site: Site, agents: int) -> bool:
    return (await site.store.batch("many")).sealed == agents


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zq-scale-") as folder:
        found = asyncio.run(measure(options.agents, Path(folder)))
    print(
        json.dumps(found)
        if options.json
        else "\n".join(f"{name:28} {value}" for name, value in found.items())
    )


if __name__ == "__main__":
    main()
