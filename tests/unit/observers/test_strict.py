from __future__ import annotations

import pytest

from zubble_queue.contracts.model import Channel
from zubble_worker.observers.ladder import GRADUATED, STRICT
from zubble_worker.observers.repetition import RepetitionDetector

ALPHABET = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"]


def bursts(text: str, channel: Channel = "text") -> list[tuple[int, int | None]]:
    detector = RepetitionDetector(STRICT)
    found = detector.feed(channel, text) + detector.finish()
    return [(one.token, one.period) for one in found if one.threshold == 5]


def piece(length: int) -> str:
    return " ".join(ALPHABET[:length]) + " "


@pytest.mark.parametrize("length", range(1, 9))
def test_more_than_five_equal_pieces_are_a_burst(length: int) -> None:
    assert bursts("It says: " + piece(length) * 5) == []
    assert bursts("It says: " + piece(length) * 6) == [(3 + 6 * length - 1, length)]
    assert bursts("It says: " + piece(length) * 7) == [(3 + 6 * length - 1, length)]


def test_a_piece_of_nine_tokens_is_none() -> None:
    assert bursts(piece(9) * 12) == []


@pytest.mark.parametrize(
    "divider", ["-" * 80, "=-" * 40, "\n" * 60, " " * 400, "| --- | --- | --- | --- | --- | --- |"]
)
def test_pieces_without_a_word_are_none(divider: str) -> None:
    assert bursts(f"Results\n{divider}\nall passed\n") == []


def test_a_burst_fires_once_and_then_the_ladder_decides() -> None:
    detector = RepetitionDetector(STRICT)
    found = detector.feed("text", "no " * 3_300) + detector.finish()
    assert [(one.threshold, one.action) for one in found] == [
        (5, "restart"),
        *((rung.threshold, rung.action) for rung in GRADUATED.rungs),
    ]


@pytest.mark.parametrize("text", ["```\n" + "0 " * 60, "~~~\n" + piece(3) * 8])
def test_a_burst_inside_a_fence_is_none(text: str) -> None:
    assert bursts(text) == []


def test_a_burst_in_tool_arguments_is_none() -> None:
    assert bursts(piece(3) * 8, "tool") == []
