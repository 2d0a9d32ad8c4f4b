# ruff: noqa: RUF001 - other scripts are the point
from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_worker.observers import tokens
from zubble_worker.observers.tokens import code, codes, tokenize

SOUP = st.text(
    st.sampled_from("ab_7é漢か ก\u0e34한\n\t \u00a0!?`\U00020000😀\U0001d400\ud83d\ude00"), max_size=120
)


def whole(text: str) -> list[str]:
    return tokenize(text, ended=True)[0]


def in_pieces(pieces: list[str]) -> list[str]:
    found: list[str] = []
    rest = ""
    for piece in pieces:
        more, rest = tokenize(rest + piece)
        found += more
    return found + whole(rest)


def test_words_signs_and_newlines_are_tokens_and_spaces_are_not() -> None:
    assert whole("if a_1 == 'x':\n    return\n") == [
        "if", "a_1", "=", "=", "'", "x", "'", ":", "\n", "return", "\n",
    ]  # fmt: skip


def test_ordinary_text_is_cut_as_the_data_was_measured() -> None:
    text = "Don't panic: naïve café costs 3.50 €, Straße 12\n\tЭто просто текст.\n"
    assert whole(text) == re.findall(r"\w+|[^\w\s]|\n", text)


@pytest.mark.parametrize("text", ["漢字かな", "ภาษา", "ພາສາ"])
def test_scripts_without_spaces_count_by_the_character(text: str) -> None:
    assert whole(text) == list(text)


def test_a_word_next_to_a_script_without_spaces_stays_a_word() -> None:
    assert whole("用Python写") == ["用", "Python", "写"]


@pytest.mark.parametrize(("length", "expected"), [(31, 1), (32, 2), (33, 2), (34, 3), (132, 52)])
def test_a_long_word_counts_by_pieces_of_two(length: int, expected: int) -> None:
    assert len(whole("a" * length)) == expected


@pytest.mark.parametrize(("length", "expected"), [(15, 0), (16, 1), (19, 1), (20, 2), (116, 26)])
def test_a_long_run_of_spaces_counts_by_pieces_of_four(length: int, expected: int) -> None:
    assert len(whole(" " * length)) == expected


def test_every_space_that_is_not_a_newline_counts_in_a_run() -> None:
    spaces = [chr(number) for number in range(0x3001) if chr(number).isspace() and chr(number) != "\n"]
    for space in spaces:
        assert in_pieces([space] * 16) == [4 * space], repr(space)


def test_halves_of_a_surrogate_pair_are_one_character() -> None:
    assert in_pieces(["\ud83d", "\ude00"]) == ["😀"]


def test_a_half_at_the_end_stays_what_it_is() -> None:
    assert in_pieces(["x\ud83d"]) == ["x", "\ud83d"]


@given(SOUP, st.data())
def test_cuts_do_not_change_the_tokens(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert in_pieces(pieces) == whole(text)


@given(st.text(st.characters(codec="ascii"), max_size=100))
def test_ascii_is_cut_alike_in_company_of_other_scripts(text: str) -> None:
    assert whole(text + "\n€")[:-2] == whole(text + "\n")[:-1]


@given(SOUP)
def test_what_is_held_back_is_short(text: str) -> None:
    assert len(tokenize(text)[1]) <= tokens.LONG_WORD_CHARS


def test_a_code_is_one_character_that_survives_json() -> None:
    sequence = codes(["word", "\n", "`", "漢", "    ", "\ud83d"])
    assert len(sequence) == 6
    assert json.loads(json.dumps(sequence)) == sequence


def test_separators_are_told_from_words() -> None:
    assert tokens.all_separators(codes(["\n", "-", "=", "    ", "─"]))
    assert not tokens.all_separators(codes(["-", "a"]))
    assert not tokens.all_separators(code("_"))
