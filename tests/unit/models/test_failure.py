"""What the endpoint says about waiting, and what of it may be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from zubble_worker.models.failure import http_failure, presentable, retry_after_seconds


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), (" 7 ", 7.0), ("1.5", 1.5), ("86400", 86_400.0)])
def test_retry_after_is_read_as_seconds(value, seconds):
    assert retry_after_seconds(value) == seconds


def test_retry_after_is_read_as_an_http_date():
    then = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < retry_after_seconds(format_datetime(then, usegmt=True)) <= 100


def test_a_date_in_the_past_means_now():
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


@pytest.mark.parametrize(
    "value",
    [None, "", "soon", "-1", "1e9", "inf", "9" * 400, "Wed, 99 Foo 2015", "21 Oct 99999999 07:28:00 GMT"],
)
def test_a_retry_after_that_says_nothing_is_none(value):
    assert retry_after_seconds(value) is None


def test_a_spent_quota_does_not_pass_although_its_status_would():
    assert http_failure(429, "pay first", code="insufficient_quota").permanent
    assert not http_failure(429, "slow down", code="rate_limit_exceeded").permanent


def test_a_message_is_shown_in_one_line_without_the_key():
    assert presentable("bad\nkey\t\x00sk-1 \x1b[1m!", "sk-1") == "bad key [key] [1m!"
