import asyncio

import pytest

from zubble_queue.contracts.model import TryEnd
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.stores.limits import Admitted, Place, Wait

ANSWERED, FAILED = TryEnd("answered"), TryEnd("failed")


def config(**limits):
    return ModelConfig(base_url="http://127.0.0.1:1/v1", price="free", **limits)


def place(number=0, model="m", tokens=100):
    return Place(model, f"slot{number}", tokens)


@pytest.fixture
def admit(world):
    async def admit(number=0, *, model="m", tokens=100, **limits):
        return await world.store.admit(place(number, model, tokens), config(**limits))

    return admit


@pytest.fixture
def leave(world):
    async def leave(end, number=0, *, model="m", tokens=100, **limits):
        return await world.store.leave(place(number, model, tokens), config(**limits), end)

    return leave


async def open_breaker(leave):
    for _ in range(10):
        is_open = await leave(FAILED)
    return is_open


async def backdate(world, **fields):
    """As if it had happened so many seconds ago, or would so many later."""
    now = await world.now()
    values = {name: round((now + seconds) * 1_000_000) for name, seconds in fields.items()}
    await world.admin.hset(world.keys.model("m"), mapping=values)


async def test_without_limits_every_call_is_admitted(admit):
    answers = [await admit(number) for number in range(50)]

    assert answers == [Admitted()] * 50


async def test_a_burst_is_admitted_for_at_most_a_second_of_the_rate(admit):
    answers = [await admit(number, rpm=600) for number in range(30)]

    assert 2 <= answers.count(Admitted()) < 10
    assert {answer.why for answer in answers if isinstance(answer, Wait)} == {"requests"}


async def test_who_waits_as_long_as_it_was_told_is_admitted(admit):
    while isinstance(answer := await admit(rpm=600), Admitted):
        pass
    await asyncio.sleep(answer.seconds)

    assert await admit(rpm=600) == Admitted()


async def test_two_models_do_not_share_a_limit_even_if_their_names_are_alike(admit):
    assert await admit(model="a:b", rpm=1) == Admitted()
    assert await admit(model="a%3Ab", rpm=1) == Admitted()
    assert isinstance(await admit(model="a:b", rpm=1), Wait)


async def test_tokens_are_limited_by_what_was_reserved(admit):
    assert await admit(tpm=6_000, tokens=3_000) == Admitted()

    answer = await admit(tpm=6_000, tokens=1)

    assert answer.why == "tokens"
    assert 25 < answer.seconds < 31


async def test_tokens_that_were_not_used_are_given_back(admit, leave):
    await admit(tpm=6_000, tokens=3_000)
    await leave(TryEnd("answered", tokens=50), tokens=3_000, tpm=6_000)

    assert await admit(tpm=6_000, tokens=1) == Admitted()


async def test_no_more_calls_are_open_than_there_are_slots(admit, leave):
    assert await admit(0, concurrency=2) == Admitted()
    assert await admit(1, concurrency=2) == Admitted()
    assert (await admit(2, concurrency=2)).why == "slots"

    await leave(ANSWERED, 0)

    assert await admit(2, concurrency=2) == Admitted()


async def test_the_slot_of_a_worker_that_died_runs_out(world, admit):
    await admit(0, concurrency=1)
    await world.admin.zadd(world.keys.model("m", "slots"), {"slot0": 1})

    assert await admit(1, concurrency=1) == Admitted()


async def test_a_slot_is_renewed_and_one_that_ran_out_is_not_brought_back(world, admit):
    await admit(0, concurrency=1)
    await world.admin.zadd(world.keys.model("m", "slots"), {"slot0": 1})
    await world.store.keep_slot(place(0))
    await world.store.keep_slot(place(7))

    slots = await world.admin.zrange(world.keys.model("m", "slots"), 0, -1, withscores=True)

    assert [name for name, _ in slots] == ["slot0"]
    assert slots[0][1] / 1_000_000 > await world.now()


async def test_what_the_provider_asks_for_holds_everybody(admit, leave):
    await leave(TryEnd("throttled", retry_after_seconds=20.0))

    answer = await admit(1)

    assert answer.why == "hold"
    assert 19 < answer.seconds <= 20.1


async def test_a_refusal_lowers_the_rate_once_for_a_burst(world, admit, leave):
    for _ in range(20):
        await leave(TryEnd("throttled", retry_after_seconds=0.0), rpm=60)
    await backdate(world, hold=-1, requests=0)

    await admit(rpm=60)

    next_one = int(await world.admin.hget(world.keys.model("m"), "requests")) / 1_000_000
    assert 1.2 < next_one - await world.now() <= 1.43


async def test_the_rate_comes_back_in_a_quarter_of_a_minute(world, admit, leave):
    await leave(TryEnd("throttled", retry_after_seconds=0.0), rpm=60)
    await backdate(world, hold=-1, requests=0, share_at=-16)

    await admit(rpm=60)

    next_one = int(await world.admin.hget(world.keys.model("m"), "requests")) / 1_000_000
    assert next_one - await world.now() <= 1.01


async def test_a_failure_holds_the_growth_and_lowers_nothing(world, leave):
    await leave(TryEnd("throttled", retry_after_seconds=0.0), rpm=60)
    before = float(await world.admin.hget(world.keys.model("m"), "share"))
    await leave(FAILED, rpm=60)

    share, share_at = await world.admin.hmget(world.keys.model("m"), "share", "share_at")

    assert before <= float(share) < before + 0.1
    assert int(share_at) / 1_000_000 > await world.now() + 5


async def test_a_model_without_a_stated_rate_learns_one_from_a_refusal(world, admit, leave):
    for number in range(10):
        await admit(number)
    await leave(TryEnd("throttled", retry_after_seconds=0.0))
    await backdate(world, hold=-1)

    answers = [await admit(number) for number in range(20)]

    assert {answer.why for answer in answers if isinstance(answer, Wait)} == {"requests"}


async def test_ten_failures_in_a_row_open_the_breaker_for_that_model_only(admit, leave):
    assert await open_breaker(leave)

    assert (await admit()).why == "breaker"
    assert await admit(model="other") == Admitted()


async def test_an_answer_between_failures_keeps_the_breaker_closed(admit, leave):
    for _ in range(5):
        await leave(FAILED)
        await leave(FAILED)
        await leave(ANSWERED)

    assert await admit() == Admitted()


async def test_after_a_minute_one_call_probes_and_the_others_wait_for_it(world, admit, leave):
    await open_breaker(leave)
    await backdate(world, open=-1)

    assert await admit(1) == Admitted()
    assert (await admit(2)).why == "probe"
    await leave(ANSWERED, 1)
    assert await admit(2) == Admitted()


async def test_a_probe_that_fails_opens_the_breaker_again(world, admit, leave):
    await open_breaker(leave)
    await backdate(world, open=-1)
    await admit(1)
    await leave(FAILED, 1)

    assert (await admit(2)).why == "breaker"


async def test_a_probe_that_was_given_up_lets_another_one_probe(world, admit, leave):
    await open_breaker(leave)
    await backdate(world, open=-1)
    await admit(1)
    await leave(TryEnd("cancelled"), 1)

    assert await admit(2) == Admitted()


async def test_tasks_of_a_model_that_fails_are_not_fed_and_go_back_at_their_claim(world, leave):
    await world.submit("a", "b")
    header = await world.announce_one()
    for _ in range(10):
        await leave(FAILED, model="scripted")

    assert (await world.store.claim(header, worker_id="w")).reason == "paused"
    assert await world.store.announce(10) == []
    await leave(ANSWERED, model="scripted")
    assert {header.source_id for header in await world.store.announce(10)} == {"a", "b"}
