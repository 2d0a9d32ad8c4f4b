"""Every kind of fault, by name; each hits something and says what, or raises NoTarget."""

from __future__ import annotations

from typing import Final

from benchmarks.chaos import queue_faults, server_faults, worker_faults
from benchmarks.chaos.pacing import Fault
from benchmarks.chaos.plan import MATRIX
from benchmarks.chaos.site import Site

FAULTS: Final[dict[str, Fault[Site]]] = {
    "worker_killed": worker_faults.killed,
    "killed_in_claim": worker_faults.killed_in_claim,
    "killed_in_seal": worker_faults.killed_in_seal,
    "worker_stopped": worker_faults.stopped,
    "worker_dozed": worker_faults.dozed,
    "stopped_before_call": worker_faults.stopped_before_call,
    "short_grace": worker_faults.short_grace,
    "clocks_apart": worker_faults.clocks_apart,
    "connections_cut": server_faults.connections_cut,
    "server_restarted": server_faults.restarted,
    "server_killed": server_faults.killed,
    "server_stopped": server_faults.stopped,
    "server_mute": server_faults.mute,
    "message_doubled": queue_faults.message_doubled,
    "message_deleted": queue_faults.message_deleted,
    "submit_retried": queue_faults.submit_retried,
}
assert FAULTS.keys() == MATRIX.keys()
