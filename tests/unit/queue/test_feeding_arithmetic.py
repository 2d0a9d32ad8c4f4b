import pytest

from zubble_queue.contracts.need import Need, Offer
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.feeder import offers


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
