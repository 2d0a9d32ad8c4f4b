"""Where the lines of a log go."""

from __future__ import annotations

import io

import pytest
import structlog

from zubble_queue.cli.logs import log_to_stderr


@pytest.fixture(autouse=True)
def afterwards():
    yield
    structlog.reset_defaults()


def test_a_logger_that_was_used_writes_to_the_standard_error_of_the_moment(monkeypatch):
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    log_to_stderr()
    log = structlog.get_logger("tests")
    log.info("one")
    first.close()
    monkeypatch.setattr("sys.stderr", second)
    log.info("two")

    assert '"event": "two"' in second.getvalue()
