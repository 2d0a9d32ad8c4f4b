"""What a process has read as a secret does not leave it through a log, whatever text it stands in."""

from __future__ import annotations

import logging

import pytest
import structlog

from zubble_queue import redaction
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.redaction import keep_out_of_logs, without_secrets

SECRET = "sk-canary-redaction"


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch):
    monkeypatch.setattr(redaction, "_secrets", set())
    yield
    structlog.reset_defaults()


@pytest.fixture
def log(monkeypatch):
    """Configure logging as a process of ours does, without pytest's own handlers."""

    def configure():
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        log_to_stderr()

    return configure


def refuse():
    raise RuntimeError(f"header Bearer {SECRET} refused")


def fail_with_it():
    try:
        refuse()
    except RuntimeError:
        structlog.get_logger("test").exception("failed", where={"key": SECRET}, count=1)
        logging.getLogger("test").exception("failed with %s", SECRET)


def test_an_exception_whose_text_holds_a_secret_is_logged_without_it(capsys, log):
    log()
    keep_out_of_logs(f" {SECRET}\n")

    fail_with_it()

    said = capsys.readouterr().err
    assert SECRET not in said
    assert said.count("header Bearer *** refused") == 2
    assert '"count": 1' in said


def test_without_being_told_a_log_says_what_it_is_given(capsys, log):
    log()

    fail_with_it()

    assert SECRET in capsys.readouterr().err


def test_the_longer_of_two_secrets_is_replaced_whole():
    keep_out_of_logs("secret")
    keep_out_of_logs("secret-and-more")

    assert without_secrets("a secret-and-more b secret") == "a *** b ***"


@pytest.mark.parametrize("short", ["", None, "ab", "  a  "])
def test_what_is_too_short_to_be_a_secret_blackens_nothing(short):
    keep_out_of_logs(short)

    assert without_secrets("abc") == "abc"
