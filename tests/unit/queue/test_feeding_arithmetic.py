import pytest

from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.feeder import Contact, wanted


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def contact(clock):
    return Contact(longest_gap_seconds=15.0, clock=clock)


def worker(slots, busy):
    return WorkerInfo(worker_id="w", version="1", host="h", pid=1, slots=slots, busy=busy)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], 0),
        ([(4, 4)], 0),
        ([(1, 0)], 2),
        ([(4, 0)], 5),
        ([(4, 1)], 4),
        ([(100, 60)], 50),
        ([(2, 0), (2, 2)], 3),
        ([(2, 5), (2, 0)], 3),
    ],
)
def test_free_slots_and_a_quarter_are_wanted_whatever_overfull_workers_say(workers, expected):
    assert wanted([worker(slots, busy) for slots, busy in workers]) == expected


def test_before_the_first_answer_there_was_no_contact(contact):
    assert contact.unbroken_seconds == 0


def test_contact_grows_with_every_answer(contact, clock):
    for _ in range(5):
        contact.answered()
        clock.now += 10

    assert contact.unbroken_seconds == 40


def test_a_failure_starts_contact_anew(contact, clock):
    contact.answered()
    clock.now += 10
    contact.answered()
    contact.broke()
    assert contact.unbroken_seconds == 0

    clock.now += 10
    contact.answered()
    clock.now += 5
    contact.answered()
    assert contact.unbroken_seconds == 5


def test_a_silence_that_nobody_noticed_starts_contact_anew(contact, clock):
    contact.answered()
    clock.now += 15.1
    contact.answered()

    assert contact.unbroken_seconds == 0


def test_time_since_the_last_answer_is_no_contact(contact, clock):
    contact.answered()
    clock.now += 10

    assert contact.unbroken_seconds == 0
