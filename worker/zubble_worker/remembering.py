"""An attempt's part in the memory across runs: what it is quoted, and what it leaves."""

from __future__ import annotations

from zubble_queue.contracts.ending import Ending
from zubble_queue.contracts.memory import MemoryEntry, namespace, reads, writes
from zubble_queue.contracts.model import estimate_tokens
from zubble_worker import memory
from zubble_worker.case import Case
from zubble_worker.contact import patiently


async def recall(case: Case) -> None:
    """Quote earlier runs of the task type, once per task: a restored transcript has them already."""
    if not reads(case.envelope.memory) or case.transcript.memory_read is not None:
        return
    facts = namespace(case.envelope.task_type)
    entries = await patiently(lambda: case.tools.store.load_facts(facts))
    opening = estimate_tokens(case.transcript.job.opening()[-1].content)
    room = case.envelope.task.context_budget_tokens - opening
    found = memory.recalled(case.envelope, entries, room_tokens=room)
    await case.record("memory_read", namespace=facts, read=list(found.read), text=found.text)


async def memory_of(case: Case, ending: Ending) -> MemoryEntry | None:
    """What later runs of the task type may know of this one; None where nothing is to be kept."""
    if not writes(case.envelope.memory):
        return None
    return memory.entry_of(case.envelope, ending, await case.trials(), round_=case.claim.lease.round)
