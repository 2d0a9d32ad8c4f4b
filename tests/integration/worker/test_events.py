"""What Flower would show: the states it derives from the events of real attempts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from celery.events.state import State

from zubble_queue.contracts.envelope import Header
from zubble_queue.testing import structured_reply as say
from zubble_worker.app import CeleryPublisher, make_app

from .conftest import SECRET, wait_until

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
SUBMIT = say("submit", report="it is there")


class Flower:
    """Listens to the events as Flower does."""

    def __init__(self, app) -> None:
        self.state = State()
        self._connection = app.connection_for_read()
        self._receiver = app.events.Receiver(self._connection, handlers={"*": self.state.event})
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def tasks(self) -> dict[str, object]:
        return dict(self.state.tasks)

    def close(self) -> None:
        self._receiver.should_stop = True
        self._thread.join(5)
        self._connection.release()


@pytest.fixture
def listening() -> Iterator:
    flowers = []

    def listen(app) -> Flower:
        flowers.append(Flower(app))
        return flowers[-1]

    yield listen
    for flower in flowers:
        flower.close()


async def test_every_attempt_shows_its_header_state_and_ending(install, listening):
    zubble = await install(
        {"good": [PLAN, MAKE, SUBMIT], "bad": [PLAN, say("report", report="no")], "empty": [PLAN]}
    )
    flower = listening(make_app(zubble.settings()))
    tasks = [zubble.task("good"), zubble.task("bad"), zubble.task("empty", verify_command="true")]
    zubble.start_worker()

    async def has_started() -> bool:
        return bool(await zubble.store.workers())

    await wait_until(has_started, "the worker is registered")
    await zubble.submit(*tasks)
    for name in ("good", "bad", "empty"):
        await zubble.sealed(name)

    async def all_ended() -> bool:
        states = [task.state for task in flower.tasks().values()]
        return len(states) == 3 and not set(states) & {"PENDING", "RECEIVED", "STARTED"}

    await wait_until(all_ended, "every task has a final state")
    shown = {key.partition(".")[0]: task for key, task in flower.tasks().items()}
    good, bad, empty = (shown[task.task_id] for task in tasks)
    assert (good.state, bad.state, empty.state) == ("SUCCESS", "SUCCESS", "FAILURE")
    assert good.name == "zubble.attempt"
    assert "verified $0.0" in good.result
    assert "3-it" in good.result
    assert "failed $" in bad.result
    assert "invalid" in empty.exception
    assert "'source_id': 'good'" in good.kwargs
    assert "This is task" not in good.kwargs, "no text of the task travels in a message"
    assert not any(SECRET in repr(task.as_dict()) for task in shown.values())


async def test_a_doubled_message_is_dropped_and_never_shows_a_wrong_state(install, listening):
    zubble = await install({"good": [PLAN, MAKE, SUBMIT]})
    flower = listening(make_app(zubble.settings()))
    task = zubble.task("good")
    zubble.start_worker()
    await zubble.submit(task)
    view = await zubble.sealed("good")
    publisher = CeleryPublisher(zubble.settings())

    await publisher.publish([task.header(epoch=1).model_copy(update={"push": 9})])

    doubled = Header.model_copy(task.header(epoch=1), update={"push": 9}).message_id

    async def is_revoked() -> bool:
        return doubled in flower.tasks() and flower.tasks()[doubled].state == "REVOKED"

    await wait_until(is_revoked, "the double is shown as revoked")
    await publisher.aclose()
    assert (await zubble.store.task(task.task_id)).attempt == view.attempt == 1
    assert len(zubble.endpoint.calls) == 3


@pytest.mark.slow
async def test_a_message_that_comes_twice_while_it_is_worked_on_goes_on_being_shown_as_started(
    install, listening
):
    slow = {"text": MAKE, "token_seconds": 0.1}
    zubble = await install({"good": [PLAN, slow, SUBMIT]})
    flower = listening(make_app(zubble.settings()))
    task = zubble.task("good")
    zubble.start_worker()
    await zubble.submit(task)

    async def works() -> bool:
        return len(zubble.endpoint.calls) == 2

    await wait_until(works, "it waits for its second reply")
    publisher = CeleryPublisher(zubble.settings())
    header = task.header(epoch=1).model_copy(update={"push": 1})

    await publisher.publish([header])

    async def is_dropped() -> bool:
        return '"reason": "doubled"' in zubble.log()

    await wait_until(is_dropped, "the double is dropped", evidence=zubble.log)
    seen = {shown.state for shown in flower.tasks().values()}
    await zubble.sealed("good")

    async def has_ended() -> bool:
        seen.update(shown.state for shown in flower.tasks().values())
        return flower.tasks()[header.message_id].state == "SUCCESS"

    await wait_until(has_ended, "its end is shown")
    await publisher.aclose()
    assert seen == {"STARTED", "SUCCESS"}
    assert len(flower.tasks()) == 1
