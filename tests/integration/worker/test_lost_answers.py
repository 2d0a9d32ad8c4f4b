"""Attempts in this process, over a store whose answers get lost and that says when to leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.contracts.record import WorkerInfo
from zubble_queue.errors import StoreUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_queue.testing import structured_reply as say
from zubble_sandbox.local import LocalProvider
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.service import Service
from zubble_worker.tools import Tools

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made >> done.txt", plan_step_id=1)
TURNS = [PLAN, MAKE, say("submit", report="it is there")]
ONCE = {"verify_command": 'test "$(cat done.txt)" = made', "sandbox": {"backend": "local"}}
INFO = WorkerInfo(worker_id="here-1-a", version="0", host="here", pid=1, slots=1, busy=0)
Call = Callable[..., Awaitable[Any]]


class LosesAnswers:
    """A store of which the first answer to every kind of call is lost, after the call took effect."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.lost: set[str] = set()

    def __getattr__(self, name: str) -> Call:
        method = getattr(self._store, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            answer = await method(*arguments, **named)
            if name not in self.lost:
                self.lost.add(name)
                raise StoreUnavailable("the answer was lost")
            return answer

        return call


class Tells:
    """A store that calls somebody after it has taken an event that fits."""

    def __init__(self, store: Any, fits: Callable[[Any], bool], tell: Callable[[], None]) -> None:
        self._store, self._fits, self._tell = store, fits, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, lease: Any, events: Any) -> None:
        await self._store.append(lease, events)
        if any(map(self._fits, events)):
            self._tell()


@pytest.fixture
async def service():
    """Make a service with a model of its own, on a store."""
    models = []

    def make(zubble: Any, store: Any) -> Service:
        table = {"base_url": zubble.endpoint.url, "price": {"input": 3.0, "output": 15.0}}
        models.append(OpenAIModel(ModelConfig.model_validate(table).named("mock")))
        tools = Tools(
            worker_id=INFO.worker_id,
            store=store,
            artifacts=zubble.artifacts,
            models={"mock": models[-1]},
            providers={"local": LocalProvider()},
            lease=LeaseSettings(),
        )
        return Service(tools, INFO)

    yield make
    for model in models:
        await model.aclose()


async def test_an_attempt_lives_through_the_loss_of_the_first_answer_to_every_kind_of_call(install, service):
    zubble = await install({"good": TURNS})
    await zubble.submit(zubble.task("good", **ONCE))
    [header] = await zubble.store.announce(1)
    store = LosesAnswers(zubble.store)

    done = await service(zubble, store).run(header)
    view = await zubble.sealed("good")

    assert done.how == "sealed"
    assert (view.outcome, view.attempt, view.abnormal_ends) == ("verified", 1, 0)
    assert view.usage.calls == len(zubble.endpoint.calls) == 3
    assert store.lost >= {"claim", "append", "preflighted", "set_preflighted", "reserve", "settle", "seal"}


async def test_a_reply_that_was_saved_and_not_acted_on_is_acted_on_by_the_next_attempt(install, service):
    """Handed over between the reply and its command; the k-th turn is the answer to k replies."""
    zubble = await install({"good": TURNS}, after_restart=TURNS)
    await zubble.submit(zubble.task("good", **ONCE))
    [header] = await zubble.store.announce(1)
    leaving = service(
        zubble,
        Tells(
            zubble.store,
            lambda event: event.type == "action" and event.data["action"] == "run",
            lambda: leaving.hand_over(),  # noqa: PLW0108 - it is made with this very store
        ),
    )

    first = await leaving.run(header)
    [again] = await zubble.store.announce(1)
    second = await service(zubble, zubble.store).run(again)
    view = await zubble.sealed("good")

    assert (first.how, second.how) == ("released", "sealed")
    assert (view.outcome, view.attempt, view.abnormal_ends) == ("verified", 2, 0)
