"""What befalls the server: connections cut, restarts, silences of one and a half leases."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

from benchmarks.chaos.place import Place

SILENT_LEASES: Final = 1.5


async def connections_cut(site: Place) -> str:
    """CLIENT KILL of every connection but our own."""
    began = time.time()
    cut = [await site.server.ask("CLIENT", "KILL", "TYPE", kind) for kind in ("normal", "pubsub")]
    site.struck("connections_cut", began)
    return f"{sum(map(int, cut))} connections"


async def restarted(site: Place) -> str:
    """SIGTERM, and started again on the same append-only file."""
    return await _ended_by(site, signal.SIGTERM, "server_restarted")


async def killed(site: Place) -> str:
    """SIGKILL, and started again on the same append-only file."""
    return await _ended_by(site, signal.SIGKILL, "server_killed")


async def stopped(site: Place) -> str:
    """SIGSTOP for one and a half leases: connections stay, nothing is answered."""
    began = time.time()
    site.server.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(SILENT_LEASES * site.lease)
    finally:
        site.server.signal(signal.SIGCONT)
    await site.server.answers()
    site.struck("server_stopped", began)
    return f"{SILENT_LEASES * site.lease:g} s"


async def mute(site: Place) -> str:
    """CLIENT PAUSE ALL for one and a half leases: commands wait, and then all of them are done."""
    began = time.time()
    await site.server.ask("CLIENT", "PAUSE", round(SILENT_LEASES * site.lease * 1_000), "ALL")
    await site.server.answers(SILENT_LEASES * site.lease + 60)
    site.struck("server_mute", began)
    return f"{SILENT_LEASES * site.lease:g} s"


async def _ended_by(site: Place, number: signal.Signals, kind: str) -> str:
    began = time.time()
    await site.server.restart(number)
    site.struck(kind, began)
    return f"away for {time.time() - began:.1f} s"
