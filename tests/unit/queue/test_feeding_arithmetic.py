import pytest

from zubble_queue.contracts.need import Need, Offer
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.feeder import Contact, offers


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


def worker(slots, busy, **serves):
    serves = {"models": {"m": "hash"}, "sandboxes": ("bubblewrap",), **serves}
    return WorkerInfo(worker_id="w", version="1", host="h", pid=1, slots=slots, busy=busy, **serves)


@pytest.mark.parametrize(
    ("workers", "room"),
    [
        ([(4, 4)], 0),
        ([(1, 0)], 2),
        ([(4, 0)], 5),
        ([(4, 1)], 4),
        ([(100, 60)], 50),
        ([(2, 0), (2, 2)], 3),
        ([(2, 5), (2, 0)], 3),
    ],
)
def test_workers_alike_have_room_for_their_free_slots_and_a_quarter_whatever_overfull_ones_say(workers, room):
    assert offers([worker(slots, busy) for slots, busy in workers]) == [
        Offer(("default/bubblewrap/m",), room)
    ]


def test_without_workers_nothing_is_offered():
    assert offers([]) == []


def test_workers_that_serve_other_needs_are_offered_apart():
    both = worker(4, 0, pools=("default", "gpu"), models={"m": "1", "n": "2"})

    assert offers([worker(4, 0), both, worker(4, 0)]) == [
        Offer(("default/bubblewrap/m",), 10),
        Offer(("default/bubblewrap/m", "default/bubblewrap/n", "gpu/bubblewrap/m", "gpu/bubblewrap/n"), 5),
    ]


def test_a_worker_without_a_sandbox_or_a_model_serves_nothing():
    assert worker(4, 0, models={}).needs == worker(4, 0, sandboxes=()).needs == ()


def test_a_worker_serves_every_strength_up_to_the_one_it_found():
    found = worker(1, 0, sandboxes=("bubblewrap", "local"), strengths={"bubblewrap": "limits"})

    assert found.needs == (
        "default/bubblewrap/m",
        "default/bubblewrap:limits/m",
        "default/bubblewrap:namespaces/m",
        "default/local/m",
    )
    assert {Need.of(key).key for key in found.needs} == set(found.needs)


@pytest.mark.parametrize("key", ["gpu/bubblewrap:kernel/meta/llama", "default/pod/m"])
def test_a_need_is_read_from_its_key_whatever_the_model_is_called(key):
    need = Need.of(key)

    assert (need.key, need.model) == (key, key.split("/", 2)[2])


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


def test_contact_that_nobody_asked_about_for_too_long_counts_for_nothing(contact, clock):
    contact.answered()
    clock.now += 10
    contact.answered()
    assert contact.unbroken_seconds == 10

    clock.now += 15.5

    assert contact.unbroken_seconds == 0
