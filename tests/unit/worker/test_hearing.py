"""What a call that was given up is charged: never less than what may have been made of it."""

from __future__ import annotations

import pytest

from zubble_queue.contracts.model import TryEnd
from zubble_worker.hearing import Hearing
from zubble_worker.observers.repetition import StreamGuard

PACE = 100.0


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


class Doorman:
    """An admission that lets a try in after a while."""

    patience_seconds = 7.0

    def __init__(self, clock, waits):
        self.clock, self.waits = clock, waits
        self.ends = []

    async def enter(self, tokens):
        self.clock.now += self.waits

    async def leave(self, end):
        self.ends.append(end)


@pytest.fixture
def clock():
    return Clock()


def hearing(clock, doorman=None):
    return Hearing(StreamGuard(), doorman, tokens_per_second=PACE, clock=clock)


def test_a_reply_that_lay_unread_while_the_process_stood_still_is_charged(clock):
    heard = hearing(clock)
    heard.feed("text", "one two ")
    clock.now += 50

    heard.give_up()

    assert heard.completion_tokens >= 50 * PACE
    assert heard.tries == 1


def test_one_that_came_until_a_moment_ago_is_charged_little_more_than_what_came(clock):
    heard = hearing(clock)
    for _ in range(1_000):
        clock.now += 1 / PACE
        heard.feed("text", "word ")

    heard.give_up()

    assert 1_000 <= heard.completion_tokens <= 2_200


async def test_waiting_for_a_place_is_charged_to_nobody(clock):
    heard = hearing(clock, Doorman(clock, waits=600))
    await heard.enter(10)
    clock.now += 1

    heard.give_up()

    assert PACE <= heard.completion_tokens <= 4 * PACE


async def test_a_call_that_was_never_let_in_has_made_nothing(clock):
    heard = hearing(clock, Doorman(clock, waits=0))
    clock.now += 600

    heard.give_up()

    assert heard.completion_tokens == 0


@pytest.mark.parametrize(
    ("end", "tries"),
    [
        (TryEnd("failed", tokens=10), 2),
        (TryEnd("failed"), 1),
        (TryEnd("throttled", tokens=10), 1),
    ],
)
async def test_an_earlier_try_counts_where_it_may_be_billed_and_what_lay_between_does_not(clock, end, tries):
    doorman = Doorman(clock, waits=0)
    heard = hearing(clock, doorman)
    await heard.enter(10)
    clock.now += 2
    await heard.leave(end)
    clock.now += 600
    await heard.enter(10)
    clock.now += 2

    heard.give_up()

    assert heard.tries == tries
    assert 2 * PACE * tries <= heard.completion_tokens <= 6 * PACE * tries
    assert doorman.ends == [end]


async def test_a_try_that_was_cancelled_and_has_left_is_counted_once(clock):
    heard = hearing(clock, Doorman(clock, waits=0))
    await heard.enter(10)
    await heard.leave(TryEnd("cancelled", tokens=10))
    before = heard.completion_tokens

    heard.give_up()

    assert (heard.tries, heard.completion_tokens) == (1, before)
    assert before > 0


def test_the_model_is_given_no_admission_where_there_is_none(clock):
    doorman = Doorman(clock, waits=0)

    assert hearing(clock).admission is None
    assert hearing(clock, doorman).admission.patience_seconds == doorman.patience_seconds
