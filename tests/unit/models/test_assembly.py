"""Text is whole for the watcher and for the record, and what was seen can be counted."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.testing import RecordingWatcher
from zubble_worker.models.assembly import Assembly


def fed(*pieces: str, cut_after: int | None = None) -> tuple[Assembly, RecordingWatcher]:
    watcher = RecordingWatcher(cut_after=cut_after)
    assembly = Assembly(watcher)
    for piece in pieces:
        assembly.feed("text", piece)
    return assembly, watcher


def test_a_surrogate_pair_sent_in_two_halves_is_one_character():
    seen, watcher = fed("smile ", "\ud83d", "\ude00", " done")
    assert seen.text == "smile \N{GRINNING FACE} done"
    assert [text for _, text in watcher.pieces] == ["smile ", "\N{GRINNING FACE}", " done"]


def test_half_a_surrogate_pair_becomes_a_replacement_character():
    assert fed("a\ude00b", "\ud83dc")[0].text == "a\ufffdb\ufffdc"


@given(st.lists(st.text(st.characters(categories=["Cs", "Ll", "So"]), max_size=4), max_size=8))
def test_whatever_is_sent_the_watcher_hears_text_that_can_be_encoded(pieces):
    seen, watcher = fed(*pieces)
    assert seen.text.encode() == watcher.heard("text").encode()


@given(st.text(), st.lists(st.integers(0, 200)))
def test_text_cut_anywhere_is_the_same_text(text, cuts):
    units = text.encode("utf-16-le", "surrogatepass")
    edges = sorted({0, len(units), *(2 * cut for cut in cuts if 2 * cut < len(units))})
    pieces = [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(edges)]
    assert fed(*pieces)[0].text == text


def test_channels_hold_their_halves_apart():
    assembly = Assembly(RecordingWatcher())
    assembly.feed("text", "\ud83d")
    assembly.feed("reasoning", "x")
    assembly.feed("text", "\ude00")
    assert (assembly.text, assembly.reasoning) == ("\N{GRINNING FACE}", "x")


def test_after_a_cut_nothing_more_is_shown_to_the_watcher():
    seen, watcher = fed("one", "two", "three", cut_after=2)
    assert seen.cut is not None
    assert watcher.heard("text") == "onetwo"


def test_what_was_seen_counts_as_a_token_a_piece_at_least():
    assert fed(*"abcdefgh")[0].estimated_tokens == 8


def test_long_pieces_count_as_a_token_for_four_bytes():
    assert fed("x" * 401)[0].estimated_tokens == 101


def test_nothing_was_delivered_before_the_first_piece():
    assert not fed()[0].delivered
    assert not fed("")[0].delivered
    assert fed(" ")[0].delivered
