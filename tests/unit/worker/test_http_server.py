"""Health is whether the event loop turns, and questions are answered in it."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus

import pytest

from zubble_worker import http_server
from zubble_worker.http_server import Bridge


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def turning(loop):
    """The same loop, running in a thread."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_a_loop_that_turns_is_healthy(turning):
    assert Bridge(turning).health({}).status is HTTPStatus.OK


def test_a_loop_that_hangs_is_not(loop, monkeypatch):
    monkeypatch.setattr(http_server, "LOOP_SECONDS", 0.05)

    answer = Bridge(loop).health({})

    assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert answer.body == "the event loop is 0.05 s late\n"


def test_a_loop_that_has_ended_is_not(loop):
    loop.close()

    assert Bridge(loop).health({}).status is HTTPStatus.SERVICE_UNAVAILABLE


def test_a_question_that_takes_too_long_is_given_up(turning, monkeypatch):
    monkeypatch.setattr(http_server, "LOOP_SECONDS", 0.05)
    given_up = threading.Event()

    async def question():
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    with pytest.raises(TimeoutError, match="the event loop did not answer"):
        Bridge(turning).ask(question)
    assert given_up.wait(5)


def test_an_answer_comes_from_the_loops_own_thread(turning):
    async def question():
        return threading.current_thread()

    assert Bridge(turning).ask(question) is not threading.current_thread()
