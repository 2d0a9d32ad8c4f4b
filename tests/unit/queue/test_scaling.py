"""How many workers a pool should have."""

import pytest

from zubble_queue import scaling
from zubble_queue.contracts.demand import Demand, Lane
from zubble_queue.contracts.need import Need
from zubble_queue.contracts.record import WorkerInfo

SMALL = Need("default", "bubblewrap", "small")


def lane(batch="b", need=SMALL, waiting=0, announced=0, held=None, room=None, oldest=0.0):
    return Lane(batch, need, waiting, announced, held, room, oldest)


def worker(slots=4, busy=0, model="small", pools=("default",)):
    return WorkerInfo(
        worker_id="w",
        version="1",
        host="h",
        pid=1,
        slots=slots,
        busy=busy,
        pools=pools,
        models={model: "hash"},
        sandboxes=("bubblewrap",),
    )


def load(*lanes, running=0, workers=(), pool="default"):
    return scaling.pool_load(pool, Demand(lanes, {SMALL: running} if running else {}, 0), workers)


def test_running_and_waiting_tasks_need_slots_alike():
    assert load(lane(waiting=3, announced=2), running=7).value(slots_per_worker=8) == 1.5


def test_a_pool_whose_queue_is_empty_keeps_the_workers_of_its_running_tasks():
    assert load(running=9).value(slots_per_worker=4) == 2.25


def test_what_a_further_worker_would_not_begin_is_told_and_not_counted():
    found = load(
        lane("paused", waiting=5, announced=1, held="paused", oldest=900),
        lane("poor", waiting=3, held="batch_spend"),
        lane("open", waiting=2, oldest=4),
    )

    assert (found.runnable, found.held, found.oldest_seconds) == (2, {"batch_spend": 3, "paused": 6}, 4)


def test_a_batch_counts_up_to_its_cap_over_all_its_lanes():
    other = Need("default", "docker", "small")

    found = load(lane(waiting=6, announced=1, room=5), lane(need=other, waiting=4, room=5))

    assert (found.runnable, found.held) == (6, {"cap": 5})


def test_a_batch_at_its_cap_has_nothing_that_grows_old():
    assert load(lane(waiting=6, room=0, oldest=900)).oldest_seconds == 0


def test_the_room_of_a_batch_counts_for_each_of_its_pools():
    gpu = Need("gpu", "bubblewrap", "small")
    lanes = (lane(waiting=5, room=3), lane(need=gpu, waiting=5, room=3))

    assert (load(*lanes).runnable, load(*lanes, pool="gpu").runnable) == (3, 3)


def test_a_pool_without_workers_starts_one_for_a_task_that_then_none_of_them_can_run():
    big = lane(need=Need("default", "bubblewrap", "big"), waiting=3)

    assert load(big).runnable == 3
    assert load(big, workers=[worker()]).held == {"unserved": 3}


def test_a_worker_of_two_pools_counts_in_both():
    crew = [worker(slots=4, busy=1, pools=("default", "gpu")), worker(slots=6)]
    found = {name: load(workers=crew, pool=name) for name in scaling.pools(Demand((), {}, 0), crew)}

    assert {name: (pool.workers, pool.slots, pool.busy) for name, pool in found.items()} == {
        "default": (2, 10, 1),
        "gpu": (1, 4, 1),
    }


def test_an_answer_has_the_fields_an_autoscaler_reads():
    answer = load(lane(waiting=3), running=1, workers=[worker(busy=1)]).answer(slots_per_worker=2)

    assert answer == {
        "schema": "zubble.scaling/1",
        "pool": "default",
        "value": 2.0,
        "running": 1,
        "runnable": 3,
        "held": {},
        "slots_per_worker": 2,
        "workers": 1,
        "slots": 4,
        "busy": 1,
    }


def test_a_worker_without_slots_is_no_answer():
    with pytest.raises(ValueError, match="at least one slot"):
        load(running=1).value(slots_per_worker=0)
