"""A reply in tokens: nothing lost, ended where an endpoint would end it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_worker.models.performance import Playback, count_tokens, perform, tokens
from zubble_worker.models.scripted_reply import ScriptedReply


def played(reply, *, max_tokens=None, stop=()):
    return perform(ScriptedReply.model_validate(reply), max_tokens=max_tokens, stop=stop)


@given(st.text())
def test_the_tokens_of_a_text_are_the_text(text):
    assert "".join(tokens(text)) == text
    assert count_tokens(text) == len(tokens(text))


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("hello", 1), ("hello world", 2), ("f(x) = 1;", 7), ("\n\n\n", 3), ("    x", 2), ("a" * 25, 3)],
)
def test_tokens_are_counted_by_the_rule(text, count):
    assert count_tokens(text) == count


def test_repeated_units_are_spelled_out():
    words = played({"text": ["It was ", {"repeat": "truncated ", "times": 7_303}, "."]})
    assert "".join(piece.text for piece in words.pieces) == "It was " + "truncated " * 7_303 + "."


@pytest.mark.parametrize(("limit", "said", "finish"), [(3, "a b c", "length"), (4, "a b c d", "stop")])
def test_max_tokens_ends_the_reply_when_there_is_more(limit, said, finish):
    words = played("a b c d", max_tokens=limit)
    assert ("".join(piece.text for piece in words.pieces), words.finish) == (said, finish)


def test_the_earliest_stop_sequence_ends_the_reply_and_its_tool_calls():
    words = played({"text": "one two three", "tool_calls": [{"name": "x"}]}, stop=("three", "two", ""))
    assert ("".join(piece.text for piece in words.pieces), words.finish) == ("one ", "stop")


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_events_hold_so_many_tokens_of_one_channel(size):
    reply = {
        "reasoning": "a b c",
        "text": "d e f g",
        "tool_calls": [{"name": "x", "arguments": "{}"}, {"name": "y"}],
        "tokens_per_event": size,
    }
    words = played(reply)
    assert words.tokens == 11
    assert max(piece.tokens for piece in words.pieces) == min(size, 4)
    assert "".join(piece.text for piece in words.pieces if piece.channel == "text") == "d e f g"
    assert [piece.text for piece in words.pieces if piece.opens_tool] == ["x", "y"]


@pytest.mark.parametrize("after", range(6))
def test_a_split_keeps_every_piece(after):
    words = played("a b c d")
    head, rest = words.split(after)
    assert (len(head), head + rest) == (min(after, 4), words.pieces)


@pytest.mark.parametrize("token_seconds", [0.0, 0.0005])
async def test_playback_gives_every_piece_once_and_in_order(token_seconds):
    words = played({"text": [{"repeat": "word ", "times": 100}]})
    batches = [batch async for batch in Playback(words.pieces, token_seconds)]
    assert tuple(piece for batch in batches for piece in batch) == words.pieces


async def test_playback_is_never_faster_than_its_pace():
    words = played({"text": [{"repeat": "word ", "times": 100}]})
    started = time.monotonic()
    async for _ in Playback(words.pieces, 0.002):
        pass
    assert time.monotonic() - started >= 0.2
