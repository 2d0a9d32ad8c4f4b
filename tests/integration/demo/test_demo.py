"""The demo ends as it says, its control does not verify anything, and a killed worker changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from zubble_queue.errors import CannotStart
from zubble_queue.stores.redis import RedisStore
from zubble_sandbox.records import Records, runtime_dir

DEGENERATE = {"loop:text": 3, "loop:action": 1, "parse_error": 1, "limit:wallclock": 1}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_whole_batch_is_sealed_with_every_expected_outcome(demo):
    result = demo().result()

    assert result["unexpected"] == {}
    assert result["by_outcome"] == {"verified": 164, **DEGENERATE}
    assert result["sealed"] == 170
    assert result["exit_code"] == 0
    assert result["tokens_saved"] > 0
    assert result["spend_usd"] > 0


@pytest.mark.timeout(300)
def test_with_the_solutions_rotated_by_one_task_nothing_is_verified(demo):
    result = demo("--rotate", "1", "--limit", "20").result()

    assert result["by_outcome"] == {"failed": 20, **DEGENERATE}


@pytest.mark.timeout(400)
async def test_a_worker_killed_in_the_middle_changes_no_outcome(demo):
    running = demo(ZUBBLE_LEASE__LEASE_SECONDS="6")
    store = await _store(running.home)

    victim, tokens = await _stopped_worker(store)
    os.kill(victim, signal.SIGKILL)
    result = await asyncio.to_thread(running.result)

    assert result["by_outcome"] == {"verified": 164, **DEGENERATE}
    assert result["unexpected"] == {}
    assert result["requeues"] >= 1, "the victim held at least one lease"
    assert _alive(tokens) == [], "no sandbox is left"


async def _store(home: Path) -> RedisStore:
    socket = home / "home" / "embedded" / "redis.sock"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            return await RedisStore.connect(f"unix://{socket}")
        except CannotStart:
            await asyncio.sleep(0.05)
    pytest.fail("the embedded server did not start")


async def _stopped_worker(store: RedisStore) -> tuple[int, list[str]]:
    """A worker stopped by SIGSTOP with sandboxes open in the middle of the batch, and their marks."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        batches = await store.batches()
        if not batches or batches[0].sealed < 60:
            continue
        for worker in await store.workers():
            os.kill(worker.pid, signal.SIGSTOP)
            tokens = _tokens(worker.pid)
            if worker.busy and _alive(tokens):
                await store.aclose()
                return worker.pid, tokens
            os.kill(worker.pid, signal.SIGCONT)
    pytest.fail("no worker had a sandbox open in the middle of the batch")


def _tokens(worker_pid: int) -> list[str]:
    """The marks of the sandboxes a worker has open."""
    records = Records(runtime_dir())
    return [record.token for record in records if record.worker_pid == worker_pid]


def _alive(tokens: list[str]) -> list[str]:
    """Command lines on this host that carry one of the marks."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        found += [line for token in tokens if token in line]
    return found
