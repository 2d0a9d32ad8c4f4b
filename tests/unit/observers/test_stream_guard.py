# ruff: noqa: RUF001 - other scripts are the point
from __future__ import annotations

import json
from itertools import count

import pytest

from zubble_queue.contracts.model import Channel, Cut, StreamWatcher
from zubble_worker.observers.ladder import GRADUATED, STRICT, Fired
from zubble_worker.observers.repetition import StreamGuard

SENTENCE = "I will now check the file once more, then write the tests, and after that I run them. "
"""20 tokens."""


def tokens_until_cut(guard: StreamGuard, delta: str, channel: Channel = "text") -> int:
    for seen in count(1):
        if guard.feed(channel, delta):
            return seen
        assert seen < 20_000, "never cut"
    raise AssertionError


def test_the_founding_incident_is_nudged_by_260_tokens_and_cut_by_3300() -> None:
    guard = StreamGuard()
    assert tokens_until_cut(guard, "truncated ") <= 3_300
    assert guard.fired[0].token <= 260
    assert [fired.threshold for fired in guard.fired] == [50, 500, 1_000, 1_500, 3_000]


@pytest.mark.parametrize(
    ("delta", "most"),
    [
        (SENTENCE, 3_300 / 20),
        ("\n", 3_300),
        ("!", 3_300),
        ("哈", 3_300),
        ("aa", 3_300),
        ("    ", 3_300),
        (" \n", 3_300),
        ("\t\r\n", 3_300),
        ("😀", 3_300),
        ("yes agree\n", 1_100),
        ("the, ", 1_650),
        ("我需要先检查一下这个文件的内容，然后再决定下一步怎么做。", 3_300 / 28),
        ("ฉันจะตรวจสอบไฟล์นี้อีกครั้ง", 3_300 / 27),
    ],
)
@pytest.mark.parametrize("channel", ["text", "reasoning"])
def test_every_kind_of_loop_is_cut(delta: str, most: float, channel: Channel) -> None:
    assert tokens_until_cut(StreamGuard(), delta, channel) <= most


def test_the_cut_names_the_stop_and_carries_evidence_for_the_record() -> None:
    guard = StreamGuard()
    tokens_until_cut(guard, "truncated ")
    assert guard.cut is not None
    assert guard.cut.reason == "loop:text"
    evidence = json.loads(json.dumps(guard.cut.evidence))
    assert {key: evidence[key] for key in ("threshold", "channel", "period", "action")} == {
        "threshold": 3_000,
        "channel": "text",
        "period": 1,
        "action": "kill",
    }
    assert len(evidence["text_tail"]) == 300


def test_evidence_can_be_written_whatever_the_model_said() -> None:
    guard = StreamGuard()
    tokens_until_cut(guard, "\udc00")
    assert guard.cut
    guard.cut.evidence["text_tail"].encode("utf-8")


def test_the_order_stands_once_given_and_nothing_more_is_kept() -> None:
    guard = StreamGuard()
    tokens_until_cut(guard, "truncated ")
    first, tokens = guard.cut, guard.tokens
    assert guard.feed("text", "and now something else. " * 20) is first
    assert guard.tokens == tokens


def test_a_nudge_waits_for_the_next_turn_and_is_from_the_harness() -> None:
    guard = StreamGuard()
    assert guard.feed("text", "truncated " * 400) is None
    (note,) = guard.notes
    assert "from the harness, not from the user" in note


def test_the_loop_is_not_quoted_to_the_model() -> None:
    guard = StreamGuard()
    guard.feed("text", "truncated " * 400)
    assert guard.notes
    assert not any("truncated" in note for note in guard.notes)


@pytest.mark.parametrize(("count", "warned"), [(999, False), (1_000, True), (1_001, True)])
def test_the_warning_is_said_word_for_word_and_before_the_nudge(count: int, *, warned: bool) -> None:
    guard = StreamGuard()
    guard.feed("text", "truncated " * (189 + count))
    first, *others = guard.notes
    assert (first == "STOP! Restart with fresh context or you will be terminated.") is warned
    assert len(others) == warned


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (499, []),
        (500, ["self_check"]),
        (501, ["self_check"]),
        (1_499, ["self_check"]),
        (1_500, ["self_check", "gate"]),
        (1_501, ["self_check", "gate"]),
    ],
)
def test_whoever_is_to_be_asked_is_asked_while_the_reply_goes_on(count: int, asked: list[str]) -> None:
    heard: list[tuple[str, int]] = []
    guard = StreamGuard(ask=lambda fired, guard: heard.append((fired.action, len(guard.tail("text")))))
    assert guard.feed("text", "truncated " * (189 + count) + ".") is None
    assert heard == [(action, 600) for action in asked]


def test_a_confirmed_gate_closes_the_stream_at_the_next_delta() -> None:
    asked: list[Fired] = []
    guard = StreamGuard(ask=lambda fired, _: asked.append(fired))
    assert guard.feed("text", "truncated " * 1_700) is None
    guard.confirm(asked[-1])
    cut = guard.feed("text", "t")
    assert cut
    assert (cut.reason, cut.evidence["action"], cut.evidence["threshold"]) == ("loop:text", "gate", 1_500)


def test_a_nudge_that_the_very_end_earned_is_due() -> None:
    guard = StreamGuard()
    for _ in range(238):
        guard.feed("text", "yes ")
    assert not any(guard.feed("text", piece) for piece in ("y", "e", "s"))
    assert guard.notes


def test_good_text_earns_nothing() -> None:
    guard = StreamGuard()
    guard.feed("text", " ".join(f"word{number * number}" for number in range(5_000)))
    assert (guard.fired, guard.notes, guard.cut) == ([], [], None)


def test_tokens_of_all_channels_are_summed() -> None:
    guard = StreamGuard()
    guard.feed("reasoning", "let me think")
    guard.feed("text", "a, b")
    guard.feed("tool", '{"x": 1}')
    assert guard.tokens == 3 + 3 + 7


def test_a_delta_of_ten_megabytes_is_cut_where_the_loop_is() -> None:
    guard = StreamGuard()
    assert isinstance(guard.feed("text", "truncated " * 1_000_000), Cut)
    assert guard.tokens < 5_000


def test_a_restart_is_told_from_a_kill() -> None:
    guard = StreamGuard(STRICT)
    guard.feed("text", "no no no no no no " + "x " * 40)
    assert guard.cut
    assert guard.cut.evidence["action"] == "restart"


def test_a_scaled_ladder_cuts_earlier() -> None:
    guard = StreamGuard(GRADUATED.validate_reachable(1_701))
    assert tokens_until_cut(guard, "truncated ") <= 1_701


def test_it_is_a_stream_watcher() -> None:
    watcher: StreamWatcher = StreamGuard()
    assert watcher.feed("text", "hello") is None
