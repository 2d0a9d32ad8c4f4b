"""What was said before a loop began can be found again, wherever the detector was when it saw the loop."""

from __future__ import annotations

import pytest

from zubble_worker.observers.ladder import GRADUATED
from zubble_worker.observers.onset import before_loop
from zubble_worker.observers.repetition import RESTART_PREFIX, StreamGuard

SENSE = "First I read the parser, then its tests; one of them fails on an empty line. "


def cut_at_the_nudge(text: str, channel="text", delta: int = 7):
    guard = StreamGuard(GRADUATED, restarts=True)
    for at in range(0, len(text), delta):
        if cut := guard.feed(channel, text[at : at + delta]):
            return cut, text[: at + delta]
    return guard.cut, text


@pytest.mark.parametrize(
    "unit",
    ["truncated ", "and so on, and ", "\n", "好的", "x", "I will check the file again, then I will answer. "],
)
@pytest.mark.parametrize("delta", [1, 7, 400])
def test_what_is_kept_is_all_that_came_before_the_loop_and_nothing_of_it(unit, delta):
    cut, heard = cut_at_the_nudge(SENSE + 4_000 * unit, delta=delta)

    assert cut.evidence["action"] == RESTART_PREFIX
    kept = before_loop(heard, cut.evidence)
    assert SENSE.startswith(kept.rstrip())
    assert len(kept) >= len(SENSE) - 20


def test_a_long_text_that_comes_again_is_left_out_too():
    block = "".join(f"line {n}: value_{n * 7 % 101} = function_{n % 13}(argument_{n})\n" for n in range(40))
    cut, heard = cut_at_the_nudge(SENSE + 20 * block)

    assert cut.evidence["by"] == "cycle"
    assert before_loop(heard, cut.evidence).rstrip() == SENSE.rstrip()


def test_copies_that_are_not_exact_are_left_out_for_the_greater_part():
    loop = "".join(f"It was truncated again{'!' if n % 15 == 0 else ''} " for n in range(400))
    cut, heard = cut_at_the_nudge(SENSE + loop)

    assert len(before_loop(heard, cut.evidence)) < len(SENSE) + 200


def test_a_loop_from_the_first_word_on_leaves_nothing():
    cut, heard = cut_at_the_nudge("truncated " * 1_000)

    assert before_loop(heard, cut.evidence) == ""


@pytest.mark.parametrize(
    ("channel", "text"),
    [("reasoning", "no " * 2_000), ("tool", "no " * 2_000), ("text", "```\n" + "no " * 1_100)],
)
def test_thoughts_tool_calls_and_code_fences_are_not_cut_for_a_nudge(channel, text):
    assert cut_at_the_nudge(text, channel)[0] is None


def test_without_a_way_to_go_on_a_nudge_cuts_nothing():
    guard = StreamGuard(GRADUATED)
    assert guard.feed("text", "no " * 1_000) is None
    assert guard.fired[0].action == "nudge"
