"""Every dialect of a chunk ends up in the same places; nonsense in it harms nobody."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.testing import RecordingWatcher
from zubble_worker.models import chunk
from zubble_worker.models.assembly import MAX_TOOL_CALLS, Assembly, Reported
from zubble_worker.models.failure import TryFailed


def assembled(*chunks) -> Assembly:
    assembly = Assembly(RecordingWatcher())
    for value in chunks:
        chunk.take(value if isinstance(value, bytes) else json.dumps(value).encode(), assembly, "sk-secret")
    return assembly


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_heard_under_each_of_its_names(name):
    seen = assembled(delta(**{name: "let me "}), delta(**{name: "think"}), delta(content="done"))
    assert (seen.reasoning, seen.text) == ("let me think", "done")


def test_reasoning_sent_under_two_names_at_once_counts_once():
    assert assembled(delta(reasoning_content="once", reasoning="once")).reasoning == "once"


def test_content_in_parts_keeps_thinking_apart():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    seen = assembled(delta(content=parts))
    assert (seen.reasoning, seen.text) == ("hm", "yes")


def test_a_refusal_is_what_the_model_said():
    assert assembled(delta(content=None, refusal="I will not.")).text == "I will not."


def test_a_whole_message_is_taken_like_a_delta():
    whole = {"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]}
    seen = assembled(whole)
    assert (seen.text, seen.finish_reason) == ("hello", "stop")


def test_tool_calls_come_in_pieces_by_index():
    seen = assembled(
        delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "second", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "first", "arguments": '{"x"'}}]),
        delta(tool_calls=[{"index": 1, "function": {"arguments": "{}"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
    )
    assert seen.tool_calls == (("first", '{"x": 1}'), ("second", "{}"))


def test_tool_calls_without_an_index_are_told_apart_by_their_place_and_continued_by_the_last():
    both = [{"id": "a", "function": {"name": "first"}}, {"id": "b", "function": {"name": "second"}}]
    seen = assembled(delta(tool_calls=both), delta(tool_calls=[{"function": {"arguments": "{}"}}]))
    assert seen.tool_calls == (("first", ""), ("second", "{}"))


def test_arguments_sent_as_an_object_become_json_text():
    call = {"index": 0, "function": {"name": "run", "arguments": {"command": "ls"}}}
    assert assembled(delta(tool_calls=[call])).tool_calls == (("run", '{"command": "ls"}'),)


def test_the_older_function_call_is_a_tool_call():
    assert assembled(delta(function_call={"name": "run", "arguments": "{}"})).tool_calls == (("run", "{}"),)


def test_no_stream_makes_more_tool_calls_than_the_bound():
    calls = [{"index": i, "function": {"name": "x"}} for i in range(MAX_TOOL_CALLS)]
    seen = assembled(delta(tool_calls=calls), delta(tool_calls=[{"index": 10**9, "function": {"name": "y"}}]))
    assert len(seen.tool_calls) == MAX_TOOL_CALLS


def test_an_event_without_choices_carries_the_usage():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert assembled({"choices": [], "usage": usage}).reported == Reported(10, 5, 4, 2)


def test_cached_tokens_are_found_under_the_name_deepseek_gives_them():
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8}
    assert chunk.reported(usage) == Reported(10, 5, 8, 0)


def test_a_later_report_replaces_an_earlier_one():
    seen = assembled(*({"usage": {"prompt_tokens": 10, "completion_tokens": n}} for n in (1, 7)))
    assert seen.reported == Reported(10, 7)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        {},
        {"prompt_tokens": 10},
        {"prompt_tokens": -1, "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": "10", "completion_tokens": "5"},
        {"prompt_tokens": 10**30, "completion_tokens": 5},
        {"prompt_tokens": float("nan"), "completion_tokens": 5},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
def test_a_report_that_cannot_be_is_none(usage):
    assert chunk.reported(usage) is None


@pytest.mark.parametrize(
    ("error", "cause", "permanent"),
    [
        ({"error": {"message": "boom", "code": 503}}, "http 503", False),
        ({"error": {"message": "boom", "code": 401}}, "http 401", True),
        ({"error": {"message": "boom", "code": "server_error"}}, "error event", False),
        ({"error": "boom"}, "error event", False),
        ({"object": "error", "message": "boom", "code": 400}, "http 400", True),
    ],
)
def test_an_error_object_in_the_stream_is_a_failure(error, cause, permanent):
    with pytest.raises(TryFailed) as caught:
        assembled(error)
    failure = caught.value
    assert (failure.cause, failure.permanent, failure.message) == (cause, permanent, "boom")


def test_a_finish_reason_of_error_is_a_failure():
    with pytest.raises(TryFailed, match="ended the answer with an error"):
        assembled({"choices": [{"delta": {"content": "x"}, "finish_reason": "error"}]})


@pytest.mark.parametrize(
    "payload", [b"{", b"[1]", b"7", b"null", b"[" * 100_000, b"\xff", b'{"a":' * 100_000, b"1" * 5_000]
)
def test_what_is_no_json_object_is_malformed(payload):
    with pytest.raises(TryFailed) as caught:
        assembled(payload)
    assert caught.value.cause == "malformed"


_NAMES = [
    *("choices", "delta", "message", "content", "reasoning", "thinking", "text", "model", "usage"),
    *("tool_calls", "function_call", "function", "name", "arguments", "index"),
    *("prompt_tokens", "finish_reason"),
]
_NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["choices", "usage", "model", "object"]), _NONSENSE))
def test_no_json_object_breaks_the_reader(value):
    with suppress(TryFailed):
        assert assembled(value).pieces >= 0


def test_the_key_never_stands_in_an_error():
    with pytest.raises(TryFailed) as caught:
        assembled({"error": {"message": "Incorrect API key provided: sk-secret\n\x1b[31m" + "x" * 1_000}})
    message = caught.value.message
    assert "sk-secret" not in message
    assert "\x1b" not in message
    assert len(message) <= 300
