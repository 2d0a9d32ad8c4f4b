from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zubble_queue.contracts.model import Channel
from zubble_worker.observers import Scope
from zubble_worker.observers.ladder import GRADUATED, STRICT, Fired, Ladder
from zubble_worker.observers.repetition import RepetitionDetector

ONSET = 189
"""Tokens of a one-word loop before the first that counts: ten that are not recycled, and 179 that are."""
THRESHOLDS = [50, 500, 1_000, 1_500, 3_000]


def fired(text: str, ladder: Ladder = GRADUATED, channel: Channel = "text") -> list[Fired]:
    detector = RepetitionDetector(ladder)
    return detector.feed(channel, text) + detector.finish()


def thresholds(text: str, ladder: Ladder = GRADUATED, channel: Channel = "text") -> list[int]:
    return [one.threshold for one in fired(text, ladder, channel)]


def words(count: int) -> str:
    return "truncated " * count


def counting(count: int) -> str:
    """A loop of which exactly `count` tokens count."""
    return words(ONSET + count)


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_a_threshold_is_reached_by_exactly_so_many(threshold: int) -> None:
    reached = [one for one in THRESHOLDS if one <= threshold]
    assert thresholds(counting(threshold - 1)) == reached[:-1]
    assert thresholds(counting(threshold)) == reached
    assert thresholds(counting(threshold + 1)) == reached


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("channel", ["text", "reasoning", "tool"])
def test_tool_arguments_take_four_times_as_much(threshold: int, channel: Channel) -> None:
    needed = 4 * threshold if channel == "tool" else threshold
    assert thresholds(counting(needed - 1), channel=channel)[-1:] != [threshold]
    assert thresholds(counting(needed), channel=channel)[-1:] == [threshold]


@pytest.mark.parametrize("marker", ["```", "~~~~", "  ```python"])
def test_a_code_fence_takes_four_times_as_much(marker: str) -> None:
    fenced = f"Here it is:\n{marker}\n"
    assert thresholds(fenced + counting(199)) == []
    assert thresholds(fenced + counting(201)) == [50]
    assert thresholds(fenced + counting(11_999)) == [50, 500, 1_000, 1_500]
    assert thresholds(fenced + counting(12_001)) == THRESHOLDS


def test_a_reply_may_start_with_a_fence() -> None:
    assert thresholds("```\n" + counting(199)) == []


def test_after_a_fence_the_thresholds_are_the_usual_ones_again() -> None:
    assert thresholds("```\nx = 1\n```\n" + counting(51)) == [50]


def test_a_fence_is_closed_only_by_its_own_kind() -> None:
    assert thresholds("```\n~~~\n" + counting(199)) == []


def test_marks_inside_a_line_open_no_fence() -> None:
    assert thresholds("Type ``` to open one. " + counting(51)) == [50]


def test_where_and_with_which_period_is_reported() -> None:
    sentence = "One two three four five six seven, and the rest. "
    first = fired(sentence * 60)[0]
    assert first == Fired(50, token=12 + 9 + 179 + 49, period=12, channel="text", action="nudge")


def test_channels_are_counted_apart() -> None:
    detector = RepetitionDetector()
    found = []
    for _ in range(230):
        found += detector.feed("text", "again ")
        found += detector.feed("reasoning", "again ")
    assert found + detector.finish() == []
    assert detector.tokens("text") == detector.tokens("reasoning") == 230
    assert detector.tokens("tool") == 0


def test_two_loops_with_sense_between_them_fire_each() -> None:
    sense = " ".join(f"word{number}" for number in range(300))
    assert thresholds(f"{counting(60)} {sense} {counting(60)}") == [50, 50]


def test_a_huge_delta_fires_what_small_ones_do() -> None:
    detector = RepetitionDetector()
    small = [one for _ in range(4_000) for one in detector.feed("text", "truncated ")]
    assert small + detector.finish() == fired(words(4_000))


def test_empty_deltas_count_nothing() -> None:
    detector = RepetitionDetector()
    assert [one for _ in range(5_000) for one in detector.feed("text", "")] == []
    assert detector.finish() == []
    assert detector.tokens("text") == 0


def test_the_tail_is_the_last_text_counted() -> None:
    detector = RepetitionDetector()
    detector.feed("text", "x" * 100 + " begin " + "word " * 200 + "end")
    detector.finish()
    assert len(detector.tail("text")) == 600
    assert detector.tail("text").endswith("word word end")


@pytest.mark.parametrize("scope", ["stream", "context", "task"])
def test_a_reset_forgets_all_text(scope: Scope) -> None:
    detector = RepetitionDetector()
    detector.feed("text", counting(49))
    detector.reset(scope)
    assert detector.tokens("text") == 0
    assert detector.feed("text", counting(49)) + detector.finish() == []


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(state))
    return copy


UNITS = st.text(st.sampled_from("ab_7é漢か한\n\t `~-.,😀\ud83d\ude00"), min_size=1, max_size=40)
LOOPS = st.builds(lambda unit, times: unit * times, UNITS, st.integers(1, 300))
LONG_LOOPS = st.builds(
    lambda words, copies: (" ".join(f"{chr(97 + n % 26)}{n:b}" for n in range(words)) + "\n") * copies,
    st.integers(190, 260),
    st.integers(3, 5),
)
COUNTERS = st.builds(
    lambda unit, step, times: "".join(f"{unit}{step * n} <|im_end|>" for n in range(times)),
    UNITS,
    st.integers(1, 99),
    st.integers(1, 800),
)
TEXTS = st.lists(LOOPS | UNITS | LONG_LOOPS | COUNTERS, min_size=1, max_size=4).map("".join)


@settings(max_examples=80)
@given(TEXTS, st.sampled_from([GRADUATED, STRICT]), st.data())
def test_wherever_deltas_are_cut_the_same_rungs_are_reached_at_the_same_tokens(
    text: str, ladder: Ladder, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=60)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    detector = RepetitionDetector(ladder)
    found = [one for piece in pieces for one in detector.feed("text", piece)]
    assert found + detector.finish() == fired(text, ladder)


@settings(max_examples=20)
@given(TEXTS, st.sampled_from([GRADUATED, STRICT]))
def test_deltas_of_one_character_do_not_change_the_verdict(text: str, ladder: Ladder) -> None:
    detector = RepetitionDetector(ladder)
    found = [one for character in text for one in detector.feed("text", character)]
    assert found + detector.finish() == fired(text, ladder)


@settings(max_examples=40)
@given(TEXTS, TEXTS, st.sampled_from([GRADUATED, STRICT]))
def test_a_detector_goes_on_from_its_state(before: str, after: str, ladder: Ladder) -> None:
    detector = RepetitionDetector(ladder)
    detector.feed("text", before)
    detector.feed("tool", after)
    copy = RepetitionDetector.from_state(through_json(detector.state()))
    assert copy.ladder == ladder
    assert copy.feed("text", after) + copy.finish() == detector.feed("text", after) + detector.finish()
    assert copy.tokens("text") == detector.tokens("text")


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 99"):
        RepetitionDetector.from_state({**RepetitionDetector().state(), "version": 99})
