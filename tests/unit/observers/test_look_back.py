"""Long periods, loops that count, and marks of chat templates."""

from __future__ import annotations

from itertools import count

import pytest

from zubble_queue.contracts.model import Channel
from zubble_worker.observers.counter import BLOCK_TOKENS, Counter
from zubble_worker.observers.cycle import Cycle
from zubble_worker.observers.ladder import Fired
from zubble_worker.observers.repetition import RepetitionDetector, StreamGuard
from zubble_worker.observers.tokens import codes, tokenize

PERIODS = [200, 252, 800, 1_472, 2_000, 4_000]


def fired(text: str, channel: Channel = "text") -> list[Fired]:
    detector = RepetitionDetector()
    return detector.feed(channel, text) + detector.finish()


def actions(text: str, by: str, channel: Channel = "text") -> list[str]:
    return [one.action for one in fired(text, channel) if one.by == by]


def block(words: int) -> list[str]:
    """Words without digits, none of them twice."""
    return [f"w{n:b}".translate({48: "o", 49: "i"}) for n in range(words)]


def cycle(period: int, repeated: int) -> str:
    """A text, and so many tokens of it again from where that is seen on."""
    words = block(period) * (repeated // period + 3)
    seen = Cycle().advance(codes(words))[0].token
    return " ".join(words[: seen + repeated])


@pytest.mark.parametrize("period", PERIODS)
def test_a_long_text_is_nudged_when_it_came_word_for_word_a_third_time(period: int) -> None:
    assert actions(cycle(period, 2 * period - 1), "cycle") == []
    assert actions(cycle(period, 2 * period), "cycle")[:1] == ["nudge"]
    assert actions(cycle(period, 2 * period + 1), "cycle")[:1] == ["nudge"]
    assert fired(cycle(period, 2 * period))[0].token < 4 * period


@pytest.mark.parametrize("period", [200, 252, 800, 1_472])
def test_a_long_text_is_asked_about_and_then_cut(period: int) -> None:
    gate, cut = max(1_500, 2 * period), max(3_000, 3 * period)
    assert "gate" not in actions(cycle(period, gate - 1), "cycle")
    assert actions(cycle(period, gate), "cycle") == ["nudge", "gate"]
    assert actions(cycle(period, cut - 1), "cycle") == ["nudge", "gate"]
    assert actions(cycle(period, cut), "cycle") == ["nudge", "gate", "kill"]
    assert actions(cycle(period, cut + 1), "cycle") == ["nudge", "gate", "kill"]


def test_tool_arguments_and_fences_take_four_times_as_much() -> None:
    assert actions(cycle(252, 5_999), "cycle", "tool") == ["nudge"]
    assert actions(cycle(252, 6_000), "cycle", "tool") == ["nudge", "gate"]
    assert actions(f"```\n{cycle(252, 5_900)}", "cycle") == ["nudge"]


def test_a_text_farther_back_than_4096_tokens_is_not_seen() -> None:
    assert fired(" ".join(block(4_097) * 4)) == []


def test_a_file_that_is_shown_twice_is_no_loop() -> None:
    assert fired(cycle(3_000, 3_000)) == []


def varied(period: int, copies: int) -> str:
    """A text with one word in two hundred that is another each time."""
    words = block(period)
    return " ".join(
        word if at % 200 else f"x{copy:b}".translate({48: "o", 49: "i"})
        for copy in range(copies)
        for at, word in enumerate(words)
    )


def test_a_long_text_with_changes_is_asked_about_and_never_cut() -> None:
    assert actions(varied(400, 30), "cycle") == ["gate"]


def steps(numbers: list[int]) -> str:
    return "".join(f"Step {number}: I will look at the file again and report.\n" for number in numbers)


def test_a_loop_that_counts_is_asked_about_at_the_top_and_never_cut() -> None:
    text = steps(list(range(1, 500)))
    assert [(one.action, one.by) for one in fired(text)] == [("gate", "counter")]


@pytest.mark.parametrize(("threshold", "seen"), [(823, False), (822, True), (821, True)])
def test_it_is_seen_at_the_end_of_the_block_that_reaches_the_threshold(threshold: int, *, seen: bool) -> None:
    counter = Counter()
    tokens = tokenize(steps(list(range(1, 200))), ended=True)[0]
    four_blocks = codes(tokens[: 4 * BLOCK_TOKENS])
    counter.advance(four_blocks[:-1], threshold)
    counting = counter.advance(four_blocks[-1:], threshold)
    assert counter.saturation.count == 4 * BLOCK_TOKENS - 14 - 9 - 179 == 822
    assert (counting is not None) is seen


@pytest.mark.parametrize("step", [1, 7, -3])
def test_it_may_count_by_any_step(step: int) -> None:
    assert actions(steps([5_000 + step * n for n in range(500)]), "counter") == ["gate"]


def test_numbers_that_follow_no_rule_are_data() -> None:
    assert fired(steps([number * number % 997 for number in range(500)])) == []


def test_names_that_are_numbered_count_too() -> None:
    text = "".join(f"I will now call the function handler_{n} and wait.\n" for n in range(500))
    assert actions(text, "counter") == ["gate"]


MARKS = ["<|im_end|>", "<|endoftext|>", "[INST]", "<end_of_turn>", "</s>", "<｜end▁of▁sentence｜>"]  # noqa: RUF001


def said(mark: str, times: int) -> str:
    return "".join(f"{mark}\nAnd what about {word}?\n" for word in block(times))


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("threshold", "action"), [(5, "nudge"), (25, "gate")])
def test_marks_of_a_chat_template_are_counted(mark: str, threshold: int, action: str) -> None:
    assert action not in actions(said(mark, threshold - 1), "leaks")
    assert actions(said(mark, threshold), "leaks")[-1:] == [action]
    assert actions(said(mark, threshold + 1), "leaks")[-1:] == [action]


def test_marks_far_from_each_other_are_quotations() -> None:
    apart = " ".join(block(200))
    assert actions(f"<|im_end|> {apart} " * 2 + said("<|im_end|>", 3), "leaks") == []


def test_marks_in_a_fence_take_four_times_as_much() -> None:
    assert actions("```\n" + said("<|im_end|>", 19), "leaks") == []
    assert actions("```\n" + said("<|im_end|>", 20), "leaks") == ["nudge"]


def test_a_long_loop_that_max_tokens_ended_is_known() -> None:
    guard = StreamGuard()
    guard.feed("text", cycle(800, 1_700))
    assert guard.unfinished_loop
    assert guard.unfinished_loop.evidence["by"] == "cycle"


def test_white_space_where_json_was_asked_for_is_cut() -> None:
    guard = StreamGuard()
    guard.feed("text", '{"action": "run", "command":')
    sent = next(n for n in count() if guard.feed("text", " "))
    assert sent < 15_900
