"""What the model is shown is cut and labelled."""

from __future__ import annotations

from dataclasses import replace

from zubble_queue.contracts.sandbox import CommandResult
from zubble_worker import view

OK = CommandResult(
    exit_code=0,
    signal=None,
    timed_out=False,
    oom=False,
    stdout=b"",
    stderr=b"",
    stdout_bytes=0,
    stderr_bytes=0,
    truncated=False,
    seconds=1.5,
)


def test_a_text_at_the_limit_is_whole_and_one_over_is_cut():
    assert view.cut("x" * 10, 10) == "x" * 10
    assert view.cut("x" * 11, 10) == "xxxxx\n[... 1 characters left out ...]\nxxxxx"


def test_head_and_tail_are_kept():
    shown = view.describe(replace(OK, stdout=b"HEAD" + b"x" * 50_000 + b"TAIL"))

    assert "HEAD" in shown
    assert shown.endswith("TAIL")
    assert len(shown) < 11_000


def test_the_end_of_a_command_is_told_apart():
    assert view.describe(OK) == "exit code 0\n(no output)"
    assert "killed by signal 9" in view.describe(replace(OK, exit_code=None, signal=9))
    assert "timed out after 1.5 s" in view.describe(replace(OK, exit_code=None, timed_out=True))
    assert "out of memory" in view.describe(replace(OK, exit_code=None, oom=True))


def test_bytes_that_are_not_utf8_are_replaced():
    assert "stderr:\n\ufffdx" in view.describe(replace(OK, stderr=b"\xffx"))
