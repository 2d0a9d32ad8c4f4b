"""Events come out whole, however their bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_worker.models import sse
from zubble_worker.models.sse import EventTooLarge, SseParser

STREAM = (
    b": hello\n\n"
    b"event: message\nid: 7\ndata: one\n\n"
    b"data:no space\r\n\r\n"
    b"data: first line\ndata: second line\n\n"
    b"\n\n"
    b"retry: 10\ndata: \xff\xfe\xf0\x9f\x98\x80\n\n"
    b"data: with: colon\rdata\r\r"
    b"data: last\n\n"
)
EVENTS = [
    b"one",
    b"no space",
    b"first line\nsecond line",
    b"\xff\xfe\xf0\x9f\x98\x80",
    b"with: colon",
    b"last",
]


def parsed(*chunks: bytes) -> list[bytes]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_all_line_ends_comments_and_fields_are_understood():
    assert parsed(STREAM) == EVENTS


def test_one_byte_at_a_time_gives_the_same_events():
    assert parsed(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_anywhere_give_the_same_events(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[a:b] for a, b in pairwise(edges))) == EVENTS


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert parsed(b"\xef\xbb\xbfdata: one\n\n") == [b"one"]


def test_an_event_without_its_blank_line_waits_for_the_end():
    parser = SseParser()
    assert parser.feed(b"data: last") == []
    assert parser.flush() == [b"last"]


@pytest.mark.parametrize("piece", [b"x" * 60, b"data: x\n" * 8], ids=["one line", "many lines"])
def test_an_event_over_its_bound_ends_the_stream(monkeypatch, piece):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = SseParser()
    parser.feed(b"data: " + piece)
    with pytest.raises(EventTooLarge):
        parser.feed(piece)


def test_many_small_events_never_reach_the_bound(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = SseParser()
    assert (
        sum(len(parser.feed(b"data: x\n\ndata: half")) + len(parser.feed(b"\n\n")) for _ in range(100)) == 200
    )


def test_a_comment_that_never_ends_is_bounded_too(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(EventTooLarge):
        parsed(*[b":"] * 200)
