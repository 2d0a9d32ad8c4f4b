"""In a silence of Redis the attempt waits, stands still, and is not charged for it."""

from __future__ import annotations

import asyncio

import pytest

from zubble_queue.contracts.record import Lease, Renewal
from zubble_queue.errors import StoreUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_worker.contact import Gate, patiently
from zubble_worker.lease import Interruption, LeaseKeeper

LEASE = Lease("1-task-00000000", "batch", 1, "f" * 32)


async def test_a_call_is_repeated_until_the_store_answers():
    answers = [StoreUnavailable("gone"), StoreUnavailable("gone"), 7]

    async def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await patiently(call) == 7


async def test_any_other_failure_comes_out_at_once():
    async def call():
        raise LookupError("no")

    with pytest.raises(LookupError):
        await patiently(call)


def test_only_the_time_behind_a_closed_gate_counts():
    now = [100.0]
    gate = Gate(lambda: now[0])

    gate.shut(since=95.0)
    now[0] = 110.0
    assert gate.shut_seconds == 15.0
    gate.open()
    now[0] = 200.0
    assert gate.shut_seconds == 15.0
    assert gate.is_open


async def test_work_is_cancelled_when_the_gate_closes():
    gate = Gate()
    cancelled = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(gate.unless_shut(endless()))
    await asyncio.sleep(0)
    gate.shut()

    assert await waiting is None
    assert cancelled.is_set()


async def test_work_that_ends_first_gives_its_result():
    async def quick():
        return "done"

    assert await Gate().unless_shut(quick()) == "done"


class _Store:
    """Answers renewals from a list; an exception in it is a silence."""

    def __init__(self, *answers: Renewal | Exception) -> None:
        self.answers = list(answers)

    async def renew(self, lease):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Watch:
    """A keeper driven by a clock of its own, and what it said."""

    def __init__(self, *answers: Renewal | Exception) -> None:
        self.now, self.said = 0.0, []
        self.keeper = LeaseKeeper(
            _Store(*answers),
            LEASE,
            LeaseSettings(lease_seconds=60),
            on_silence=self._silence,
            on_contact=self._contact,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds):
        self.now += seconds

    async def _silence(self, since):
        self.said.append(("silence", since, self.now))

    async def _contact(self):
        self.said.append(("contact", self.now))


HELD, GONE = Renewal(held=True), Renewal(held=False)
SILENCE = StoreUnavailable("silent")


async def test_a_refused_renewal_means_the_lease_is_lost():
    watch = _Watch(HELD, HELD, GONE)

    assert await watch.keeper.watch() is Interruption.LOST
    assert watch.said == []


async def test_a_renewal_brings_the_operators_wish_to_cancel():
    assert await _Watch(Renewal(held=True, cancel=True)).keeper.watch() is Interruption.CANCELLED


async def test_two_thirds_of_a_lease_without_an_answer_are_a_silence():
    """Lease 60 s, renewed every 15: at 15 and 30 s it may still come; at 40 s the attempt stands still."""
    watch = _Watch(SILENCE, SILENCE, GONE)

    assert await watch.keeper.watch() is Interruption.LOST
    assert watch.said == [("silence", 0.0, 40.0)]


async def test_a_missed_renewal_is_not_yet_a_silence():
    watch = _Watch(SILENCE, HELD, SILENCE, GONE)

    await watch.keeper.watch()

    assert watch.said == []


async def test_after_a_silence_the_same_token_decides():
    watch = _Watch(SILENCE, SILENCE, SILENCE, SILENCE, HELD, GONE)

    assert await watch.keeper.watch() is Interruption.LOST
    assert [word[0] for word in watch.said] == ["silence", "contact"]
