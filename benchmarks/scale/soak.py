"""Many short tasks through one worker: what grows?

    python -m benchmarks.scale.soak [--tasks 1000] [--slots 8] [--json]

The tasks come in ten batches. After each one `zubble doctor` has to find no key without the time to live that
it should have. Then, when the worker is idle, its memory, file descriptors, threads and the server's keys are
noted; sealed records are removed first, as their TTL would. Exits with 1 when the doctor found something, or
when the last half of the run grew: descriptors or threads at all, keys by more than one index entry a batch,
memory by more than 2 KiB a task. Connections are counted apart: a worker keeps what it once needed at a time,
at most 32 to Redis and one for each slot to the endpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.site import Footprint, Site, until
from zubble_queue.stores.connection import MAX_CONNECTIONS

BATCHES: Final = 10
KIB_PER_TASK: Final = 2.0
_SETTLING_SECONDS: Final = 2.0
SHORT: Final = {
    "rules": [
        {
            "turns": [
                '{"action": "plan", "reasoning": "r", "steps": ["make it", "submit"]}',
                '{"action": "run", "reasoning": "r", "command": "echo x > done.txt", "plan_step_id": 1}',
                '{"action": "submit", "reasoning": "r", "report": "made"}',
            ]
        }
    ]
}


async def measure(tasks: int, slots: int, folder: Path) -> dict[str, Any]:
    site = Site(folder, SHORT, slots=slots)
    await site.start()
    notes: list[dict[str, Any]] = []
    began = time.monotonic()
    try:
        await until(site.store.workers, 60, "the worker is there")
        for number in range(BATCHES):
            notes.append(await _one_batch(site, f"batch-{number}", tasks // BATCHES))
            print(notes[-1], file=sys.stderr, flush=True)
    finally:
        await site.stop()
    return {
        "tasks": tasks // BATCHES * BATCHES,
        "slots": slots,
        "verified": sum(note["verified"] for note in notes),
        "seconds": round(time.monotonic() - began, 1),
        "grown_in_last_half": _growth(notes, tasks),
        "notes": notes,
        "worst_loop_lag_seconds": site.worst_lag_seconds(),
    }


async def _one_batch(site: Site, name: str, tasks: int) -> dict[str, Any]:
    await site.submit(name, [f"{name}-{number}" for number in range(tasks)])
    await until(lambda: _done(site, name), 60 + 5 * tasks, f"{name} is done")
    verified = (await site.store.batch(name)).outcomes.get("verified", 0)
    verdict, detail = await site.doctor("keys")
    await _expire_sealed(site)
    await site.store.census()
    await asyncio.sleep(_SETTLING_SECONDS)
    held, connections = Footprint.of(site.worker), await _connections(site)
    return {
        "verified": verified,
        "doctor": f"{verdict}: {detail}",
        "keys": await _keys(site),
        "connections": connections,
        **asdict(replace(held, fds=held.fds - held.tcp - connections)),
    }


async def _done(site: Site, name: str) -> bool:
    return (await site.store.batch(name)).state == "done"


async def _expire_sealed(site: Site) -> None:
    """As if their time had come: keys of tasks and batches, all of which must have a time to live by now."""
    client = site.store._client  # noqa: SLF001 - the store itself never looks for keys
    for pattern in ("task", "batch"):
        async for key in client.scan_iter(f"zubble:*:{pattern}:*", count=1_000):
            if await client.ttl(key) < 0:
                raise RuntimeError(f"{key} would stay for ever")
            await client.delete(key)


async def _keys(site: Site) -> int:
    return int(await site.store._client.dbsize())  # noqa: SLF001


async def _connections(site: Site) -> int:
    """The worker's to Redis, without Celery's own."""
    client = site.store._client  # noqa: SLF001
    pool = client.connection_pool
    ours = len(pool._available_connections) + len(pool._in_use_connections)  # noqa: SLF001
    names = [each["name"] for each in await client.client_list()]
    return names.count("zubble") - ours


def _growth(notes: list[dict[str, Any]], tasks: int) -> dict[str, float]:
    middle, last = notes[len(notes) // 2 - 1], notes[-1]
    grown = {
        name: last[name] - middle[name]
        for name in ("keys", "fds", "connections", "tcp", "threads", "rss_kib", "anonymous_kib")
    }
    return {**grown, "kib_per_task": round(grown["anonymous_kib"] / max(tasks / 2, 1), 3)}


def is_flat(found: dict[str, Any]) -> bool:
    grown = found["grown_in_last_half"]
    return bool(
        all(note["doctor"].startswith("ok") for note in found["notes"])
        and found["notes"][-1]["connections"] <= MAX_CONNECTIONS
        and found["notes"][-1]["tcp"] <= found["slots"]
        and grown["fds"] <= 0
        and grown["threads"] <= 0
        and grown["keys"] <= BATCHES
        and grown["kib_per_task"] <= KIB_PER_TASK
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zq-soak-") as folder:
        found = asyncio.run(measure(options.tasks, options.slots, Path(folder)))
    found["flat"] = is_flat(found)
    print(json.dumps(found) if options.json else json.dumps(found, indent=1))
    return 0 if found["flat"] and found["verified"] == found["tasks"] else 1


if __name__ == "__main__":
    sys.exit(main())
