"""Waiting for a batch: through silence of the store, until the seal or until the user leaves."""

from __future__ import annotations

import asyncio

import pytest

from zubble_queue.cli import waiting
from zubble_queue.cli.waiting import until_sealed
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.record import BatchInfo, BatchView
from zubble_queue.errors import StoreUnavailable


def view(sealed, total=2, state="open"):
    return BatchView(
        info=BatchInfo(name="b"),
        state=state,
        created_at=0.0,
        total=total,
        states={"sealed": sealed, "running": total - sealed},
        outcomes={"verified": sealed},
        usage=Usage(),
        tokens_saved=0,
        phase_seconds={},
        requeues=0,
    )


class Store:
    """Answers with one thing after the other, the last one again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def batch(self, name):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait_for_change(self, name, timeout_seconds):
        await asyncio.sleep(0)


class Seen:
    def __init__(self):
        self.steps = []

    def update(self, done, total, text=""):
        self.steps.append((done, total))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 0.001)


async def test_it_ends_when_every_task_is_sealed():
    seen = Seen()

    found = await until_sealed(Store(view(0), view(1), view(2)), "b", stop=asyncio.Event(), progress=seen)

    assert (found.sealed, seen.steps) == (2, [(0, 2), (1, 2), (2, 2)])


async def test_a_batch_that_is_still_loading_has_not_ended():
    store = Store(view(0, total=0, state="loading"), view(1, total=1, state="done"))

    found = await until_sealed(store, "b", stop=asyncio.Event(), progress=Seen())

    assert found.total == 1


async def test_a_short_silence_of_the_store_is_waited_out_and_workers_are_looked_after():
    looked = []
    store = Store(view(0), StoreUnavailable("away."), StoreUnavailable("away."), view(2))

    found = await until_sealed(
        store, "b", stop=asyncio.Event(), progress=Seen(), look_after=lambda: looked.append(1)
    )

    assert (found.sealed, len(looked)) == (2, 4)


async def test_a_long_silence_is_infrastructure_lost(monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.01)

    with pytest.raises(StoreUnavailable):
        await until_sealed(Store(StoreUnavailable("away.")), "b", stop=asyncio.Event(), progress=Seen())


async def test_the_user_may_leave_at_any_time():
    class Patient(Store):
        async def wait_for_change(self, name, timeout_seconds):
            stop.set()
            await asyncio.sleep(1_000)

    stop = asyncio.Event()

    assert await until_sealed(Patient(view(0)), "b", stop=stop, progress=Seen()) is None
