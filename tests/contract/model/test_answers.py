"""What every model promises about an answer that comes."""

from __future__ import annotations

import asyncio

import pytest

from zubble_queue.contracts.model import Message
from zubble_queue.testing import RecordingWatcher

LOOP = {"text": ["It was ", {"repeat": "truncated ", "times": 7_303}]}


async def test_an_answer_arrives_whole_with_its_reported_usage_and_its_price(bench):
    await bench.play("Hello there, world.")
    reply = await bench.ask()
    assert (reply.text, reply.finish) == ("Hello there, world.", "stop")
    assert (reply.usage.calls, reply.usage.estimated_calls) == (1, 0)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (12, 5)
    assert reply.usage.spend_micro_usd == 12 * 3 + 5 * 15


async def test_the_watcher_hears_every_piece_once_and_in_order(bench):
    await bench.play("Tokens come one by one.")
    reply = await bench.ask()
    assert bench.watcher.pieces == [("text", t) for t in ("Tokens", " come", " one", " by", " one", ".")]
    assert bench.watcher.heard("text") == reply.text


async def test_reasoning_text_and_tool_arguments_are_kept_apart(bench):
    call = {"name": "run", "arguments": '{"command": "ls"}'}
    await bench.play({"reasoning": "I should look.", "text": "Looking.", "tool_calls": [call]})
    reply = await bench.ask()
    assert (reply.reasoning, reply.text) == ("I should look.", "Looking.")
    assert reply.tool_calls == (("run", '{"command": "ls"}'),)
    assert [bench.watcher.heard(channel) for channel in ("reasoning", "text", "tool")] == [
        "I should look.",
        "Looking.",
        '{"command": "ls"}',
    ]


async def test_tool_calls_keep_their_order_and_one_without_arguments_has_none(bench):
    await bench.play({"tool_calls": [{"name": "first"}, {"name": "second", "arguments": "{}"}]})
    reply = await bench.ask()
    assert reply.tool_calls == (("first", ""), ("second", "{}"))
    assert reply.extra["finish_reason"] == "tool_calls"


async def test_an_answer_of_nothing_but_a_tool_call_has_begun_with_its_name(bench):
    await bench.play({"tool_calls": [{"name": "look"}], "fault": {"kind": "reset", "after_tokens": 1}})
    reply = await bench.ask()
    assert (reply.finish, reply.tool_calls) == ("error", (("look", ""),))


async def test_a_cut_ends_the_answer_at_the_piece_that_caused_it(bench):
    await bench.play(LOOP)
    bench.watcher.cut_after = 3_000
    reply = await bench.ask()
    assert (reply.finish, reply.cut.reason) == ("cut", "loop:text")
    assert reply.text.count("truncated") == 2_998
    assert len(bench.watcher.pieces) == 3_000


async def test_a_cut_answer_is_paid_for_by_an_estimate_not_below_what_came(bench):
    await bench.play(LOOP)
    bench.watcher.cut_after = 3_000
    usage = (await bench.ask()).usage
    assert (usage.calls, usage.estimated_calls) == (1, 1)
    assert 3_000 <= usage.completion_tokens <= 10_000
    assert usage.prompt_tokens >= 12
    assert usage.spend_micro_usd == usage.prompt_tokens * 3 + usage.completion_tokens * 15


async def test_max_tokens_ends_an_answer_with_length(bench):
    await bench.play(LOOP)
    reply = await bench.ask(max_tokens=300)
    assert (reply.finish, reply.usage.completion_tokens) == ("length", 300)


async def test_a_finish_reason_of_length_is_passed_on(bench):
    await bench.play({"text": "half an ans", "finish": "length"})
    assert (await bench.ask()).finish == "length"


async def test_a_stop_sequence_ends_the_answer_before_it(bench):
    await bench.play("The end.\nUser: and then?")
    reply = await bench.ask(stop=("\nUser:",))
    assert (reply.text, reply.finish) == ("The end.", "stop")


async def test_stop_sequences_stay_away_where_the_endpoint_refuses_them(bench):
    await bench.play("The end.\nUser: and then?", capabilities={"stop": False})
    assert (await bench.ask(stop=("\nUser:",))).text == "The end.\nUser: and then?"


async def test_only_as_many_stop_sequences_are_used_as_the_endpoint_takes(bench):
    await bench.play("one two three", capabilities={"max_stop": 1})
    assert (await bench.ask(stop=("three", "two"))).text == "one two "


async def test_an_empty_answer_is_an_answer_and_is_paid_for(bench):
    await bench.play("")
    reply = await bench.ask()
    assert (reply.text, reply.finish, reply.retries) == ("", "stop", ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (12, 0)


async def test_the_cached_part_of_the_prompt_has_its_own_price(bench):
    await bench.play({"text": "ok", "cached_tokens": 10})
    usage = (await bench.ask()).usage
    assert usage.cached_tokens == 10
    assert usage.spend_micro_usd == 2 * 3 + 10 * 1 + 1 * 15


async def test_missing_usage_is_estimated_and_says_so(bench):
    await bench.play({"text": "some words that nobody counted", "usage": False})
    reply = await bench.ask()
    assert reply.finish == "stop"
    assert reply.usage.estimated_calls == 1
    assert reply.usage.completion_tokens >= 5
    assert reply.usage.prompt_tokens >= 12
    assert reply.usage.spend_micro_usd > 0


async def test_reasoning_is_counted_inside_completion(bench):
    await bench.play({"reasoning": "one two three", "text": "four"})
    usage = (await bench.ask()).usage
    assert (usage.reasoning_tokens, usage.completion_tokens) == (3, 4)


async def test_bytes_that_are_not_utf8_become_replacement_characters(bench):
    await bench.play({"text": "before after", "fault": {"kind": "invalid_utf8", "after_tokens": 1}})
    reply = await bench.ask()
    assert (reply.text, reply.finish) == ("before\ufffd\ufffd\ufffd( after", "stop")


async def test_a_piece_of_ten_megabytes_is_taken_whole(bench):
    await bench.play({"text": "before after", "fault": {"kind": "big_chunk", "after_tokens": 1}})
    reply = await bench.ask()
    assert len(reply.text) == len("before after") + 10 * 1_048_576
    assert max(len(text) for _, text in bench.watcher.pieces) == 10 * 1_048_576


async def test_what_was_lost_in_a_piece_of_ten_megabytes_is_billed_at_max_tokens_at_most(bench):
    await bench.play({"text": "x", "usage": False, "fault": {"kind": "big_chunk", "after_tokens": 1}})
    assert (await bench.ask(max_tokens=500)).usage.completion_tokens == 500


async def test_the_next_turn_is_chosen_by_the_assistant_messages_in_the_prompt(bench):
    await bench.play("first", "second")
    talk = (Message("user", "go"), Message("assistant", "first"), Message("user", "on"))
    assert (await bench.ask(talk)).text == "second"
    assert (await bench.ask(talk[:1])).text == "first"


async def test_the_time_to_the_first_token_lies_within_the_call(bench):
    await bench.play({"text": "slow start", "delay_seconds": 0.05})
    reply = await bench.ask()
    assert 0.05 <= reply.time_to_first_token_seconds <= reply.seconds


async def test_cancelling_a_call_ends_it(bench, wait_until):
    await bench.play(
        {"text": "one two", "fault": {"kind": "stall", "after_tokens": 1}}, idle_timeout_seconds=60
    )
    asking = asyncio.create_task(bench.ask())
    await wait_until(lambda: bench.watcher.pieces, "the first piece has come")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_many_calls_at_once_do_not_mix(bench):
    await bench.play({"text": ["on and ", {"repeat": "on ", "times": 50}]})
    watchers = [RecordingWatcher(cut_after=n) for n in range(1, 41)]
    first = bench.watcher
    replies = []
    async with asyncio.TaskGroup() as group:
        for watcher in watchers:
            bench.watcher = watcher
            replies.append(group.create_task(bench.ask()))
            await asyncio.sleep(0)
    bench.watcher = first
    assert [reply.result().extra["pieces"] for reply in replies] == list(range(1, 41))
