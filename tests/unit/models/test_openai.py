"""The OpenAI-compatible model against endpoints made of raw bytes."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from zubble_queue.contracts.model import Price
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.errors import ModelUnavailable, OperatorError
from zubble_queue.testing import RecordingWatcher
from zubble_worker.models import openai
from zubble_worker.models import sse as sse_module
from zubble_worker.models.mock_endpoint import MockEndpoint
from zubble_worker.models.openai import OpenAIModel
from zubble_worker.models.script import Script

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def text(content):
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\nconnection: close\r\n\r\n" + body


async def test_a_stream_cut_after_every_byte_reads_the_same(raw_endpoint, make_model, ask):
    events = "".join(
        f"data: {json.dumps(text(piece), ensure_ascii=False)}\r\n\r\n" for piece in ("grüß", " 😀")
    )
    raw = f"{events}data: {json.dumps(STOP)}\r\n\r\ndata: [DONE]\r\n\r\n".encode()
    endpoint = await raw_endpoint(STREAM_HEAD, *(raw[i : i + 1] for i in range(len(raw))))
    watcher = RecordingWatcher()
    reply = await ask(make_model(endpoint.url), watch=watcher)
    assert (reply.text, reply.finish) == ("grüß 😀", "stop")
    assert [piece for _, piece in watcher.pieces] == ["grüß", " 😀"]


async def test_a_stream_without_done_is_whole_when_it_named_its_end(sse, make_model, ask):
    endpoint = await sse(text("hello"), STOP, done=False)
    reply = await ask(make_model(endpoint.url))
    assert (reply.text, reply.finish) == ("hello", "stop")


async def test_a_stream_without_a_finish_reason_is_whole_when_it_said_done(sse, make_model, ask):
    endpoint = await sse(text("hello"))
    assert (await ask(make_model(endpoint.url))).finish == "stop"


async def test_a_stream_that_just_ends_is_broken(sse, make_model, ask):
    endpoint = await sse(text("hello"), done=False)
    reply = await ask(make_model(endpoint.url))
    assert (reply.text, reply.finish) == ("hello", "error")


async def test_done_without_an_answer_is_no_answer(sse, make_model, ask):
    endpoint = await sse()
    with pytest.raises(ModelUnavailable, match="after 2 tries: eof"):
        await ask(make_model(endpoint.url))


async def test_an_endpoint_that_does_not_stream_is_understood(raw_endpoint, make_model, ask):
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    choice = {"message": {"content": "hello", "reasoning_content": "hm"}, "finish_reason": "stop"}
    endpoint = await raw_endpoint(answer(json.dumps({"choices": [choice], "usage": usage}).encode()))
    reply = await ask(make_model(endpoint.url))
    assert (reply.text, reply.reasoning, reply.finish, reply.usage.tokens) == ("hello", "hm", "stop", 9)


async def test_json_that_is_no_completion_is_permanent(raw_endpoint, make_model, ask):
    endpoint = await raw_endpoint(answer(b'{"status": "ok"}'))
    with pytest.raises(ModelUnavailable, match="no chat completion") as caught:
        await ask(make_model(endpoint.url))
    assert caught.value.permanent


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "text/event-stream"])
async def test_a_web_page_is_recognised_whatever_it_calls_itself(raw_endpoint, make_model, ask, kind):
    endpoint = await raw_endpoint(answer(b"\n<!doctype html><p>hi", kind=kind))
    with pytest.raises(ModelUnavailable, match="a web page instead of JSON"):
        await ask(make_model(endpoint.url))


async def test_a_redirect_is_not_followed_and_the_key_stays_here(raw_endpoint, make_model, ask):
    elsewhere = await raw_endpoint(answer(b"{}"))
    endpoint = await raw_endpoint(answer(b"", f"location: {elsewhere.url}", status="307 Temporary Redirect"))
    with pytest.raises(ModelUnavailable, match="http 307") as caught:
        await ask(make_model(endpoint.url, api_key="sk-1"))
    assert caught.value.permanent
    assert elsewhere.heads == []


async def test_a_compressed_answer_is_not_unpacked(raw_endpoint, make_model, ask):
    bomb = gzip.compress(b"x" * 10_000_000)
    endpoint = await raw_endpoint(answer(bomb, "content-encoding: gzip", kind="text/event-stream"))
    with pytest.raises(ModelUnavailable, match="compressed"):
        await ask(make_model(endpoint.url))


async def test_bytes_that_are_no_http_are_a_failed_connection(raw_endpoint, make_model, ask):
    endpoint = await raw_endpoint(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    with pytest.raises(ModelUnavailable, match="after 2 tries: reset"):
        await ask(make_model(endpoint.url))


async def test_nobody_listening_is_a_failed_connection_that_is_tried_again(
    raw_endpoint, make_model, ask, stack
):
    endpoint = await raw_endpoint()
    await stack.aclose()
    with pytest.raises(ModelUnavailable, match="after 2 tries: connect") as caught:
        await ask(make_model(endpoint.url))
    assert not caught.value.permanent
    assert caught.value.usage is None


async def test_an_event_over_its_bound_ends_the_call_and_is_paid_for(
    raw_endpoint, make_model, ask, monkeypatch
):
    monkeypatch.setattr(sse_module, "MAX_EVENT_BYTES", 200_000)
    endpoint = await raw_endpoint(STREAM_HEAD, *[b"data: " + b"x" * 50_000] * 10)
    reply = await ask(make_model(endpoint.url, price={"input": 1, "output": 2}))
    assert (reply.finish, reply.text) == ("error", "")
    assert "too large" in reply.detail
    assert reply.usage.completion_tokens == 1_000
    assert reply.usage.spend_micro_usd >= 2_000


async def test_a_stream_over_its_bound_ends_the_call(raw_endpoint, make_model, ask, monkeypatch):
    monkeypatch.setattr(openai, "_MAX_STREAM_BYTES", 200_000)
    event = b"data: " + json.dumps(text("x" * 10_000)).encode() + b"\n\n"
    endpoint = await raw_endpoint(STREAM_HEAD, *[event] * 50)
    reply = await ask(make_model(endpoint.url))
    assert reply.finish == "error"
    assert len(reply.text) < 400_000


async def test_an_endpoint_that_ignores_max_tokens_is_stopped_and_every_piece_paid_for(sse, make_model, ask):
    endpoint = await sse(*[text("x ")] * 3_000, STOP)
    reply = await ask(make_model(endpoint.url), max_tokens=1_000)
    assert reply.finish == "length"
    assert 1_250 <= reply.extra["pieces"] < 3_000
    assert reply.usage.completion_tokens >= reply.extra["pieces"]


async def test_reported_usage_that_came_early_does_not_hide_what_came_after_it(sse, make_model, ask):
    early = text("x ") | {"usage": {"prompt_tokens": 50, "completion_tokens": 1}}
    endpoint = await sse(early, *[text("x ")] * 500)
    reply = await ask(make_model(endpoint.url), watch=RecordingWatcher(cut_after=400))
    assert reply.usage.prompt_tokens == 50
    assert reply.usage.completion_tokens >= 400
    assert reply.usage.estimated_calls == 1


@pytest.mark.parametrize("status", ["401 Unauthorized", "500 Internal Server Error"])
async def test_the_key_is_in_the_request_and_in_no_message(raw_endpoint, make_model, ask, status):
    said = json.dumps({"error": {"message": "Incorrect API key provided: sk-very-secret."}}).encode()
    endpoint = await raw_endpoint(answer(said, status=status))
    model = make_model(endpoint.url, api_key="sk-very-secret")
    with pytest.raises(ModelUnavailable, match="Incorrect API key provided") as caught:
        await ask(model)
    assert "authorization: bearer sk-very-secret" in endpoint.heads[0].lower()
    chain, error = "", caught.value
    while error is not None:
        chain, error = chain + repr(error) + str(error), error.__cause__
    assert "sk-very-secret" not in chain + repr(model)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ümlaut", "", "  "])
def test_a_key_that_cannot_be_a_header_is_refused_without_being_shown(make_model, key):
    with pytest.raises(OperatorError) as caught:
        make_model("http://127.0.0.1:1/v1", api_key=key)
    assert not key.strip() or key not in str(caught.value)


async def test_no_proxy_of_the_environment_stands_before_a_loopback_endpoint(
    sse, make_model, ask, monkeypatch
):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    endpoint = await sse(text("direct"), STOP)
    assert (await ask(make_model(endpoint.url))).text == "direct"


async def test_the_next_call_uses_the_same_connection(make_model, ask):
    async with MockEndpoint(Script.always("hello")) as endpoint:
        model = make_model(endpoint.url)
        connections = set()
        for _ in range(3):
            await ask(model)
            connections |= endpoint._server.connections
        assert len(connections) == 1


@pytest.mark.parametrize("ending", ["cut", "cancel", "deadline"])
async def test_a_call_that_ends_early_closes_its_connection_at_once(make_model, ask, wait_until, ending):
    endless = {"text": [{"repeat": "word ", "times": 20_000}], "token_seconds": 0.001}
    async with MockEndpoint(Script.always(endless)) as endpoint:
        watcher = RecordingWatcher(cut_after=20 if ending == "cut" else None)
        deadline = 1.0 if ending == "deadline" else 60.0
        asking = asyncio.create_task(
            ask(make_model(endpoint.url), watch=watcher, max_tokens=100_000, deadline_seconds=deadline)
        )
        await wait_until(lambda: len(watcher.pieces) >= 20, "twenty pieces have come")
        if ending == "cancel":
            asking.cancel()
        await asyncio.wait([asking])
        await wait_until(lambda: endpoint.calls[0].done, "the endpoint has noticed")
        assert endpoint.calls[0].aborted
        assert endpoint.calls[0].completion_tokens < 20_000
        assert not endpoint._server.connections


async def test_the_estimate_after_a_cut_is_not_below_what_the_endpoint_counted(make_model, ask, wait_until):
    loop = {"text": [{"repeat": "truncated ", "times": 7_303}], "token_seconds": 0.0002}
    async with MockEndpoint(Script.always(loop)) as endpoint:
        model = make_model(endpoint.url, price={"input": 3, "output": 15})
        reply = await ask(model, watch=RecordingWatcher(cut_after=3_000), max_tokens=10_000)
        await wait_until(lambda: endpoint.calls[0].done, "the endpoint has noticed")
        assert reply.usage.completion_tokens >= endpoint.calls[0].completion_tokens >= 3_000
        assert reply.usage.prompt_tokens >= endpoint.calls[0].prompt_tokens


async def test_hundreds_of_streams_run_at_once(make_model, ask):
    slow = {"text": [{"repeat": "word ", "times": 40}], "token_seconds": 0.01}
    async with MockEndpoint(Script.always(slow)) as endpoint:
        model = make_model(endpoint.url, idle_timeout_seconds=60)
        replies = await asyncio.gather(*(ask(model, deadline_seconds=100) for _ in range(500)))
        assert {reply.finish for reply in replies} == {"stop"}
        assert {len(reply.text) for reply in replies} == {200}
        assert sum(call.completion_tokens for call in endpoint.calls) == sum(
            reply.usage.completion_tokens for reply in replies
        )


async def test_a_thinking_level_the_endpoint_does_not_know_is_refused_before_any_request(
    raw_endpoint, make_model, ask
):
    endpoint = await raw_endpoint(answer(b"{}"))
    model = make_model(endpoint.url, capabilities={"reasoning_efforts": {"low": "low"}})
    with pytest.raises(
        ModelUnavailable, match="UNSUPPORTED_REASONING_EFFORT: 'm' takes low, not xhigh"
    ) as caught:
        await ask(model, level="xhigh")
    assert caught.value.permanent
    assert endpoint.heads == []


async def test_a_model_of_a_table_has_the_tables_name_and_price(sse, ask, stack):
    endpoint = await sse(text("hello"), STOP)
    table = {"base_url": endpoint.url, "model": "qwen3", "price": {"input": 1, "output": 2}}
    model = OpenAIModel.from_config("solver", ModelConfig.model_validate(table))
    stack.push_async_callback(model.aclose)
    await ask(model)
    assert (model.name, model.price, model.context_tokens) == ("solver", Price(1, 2), 128_000)
    assert endpoint.bodies[0]["model"] == "qwen3"


async def test_a_call_with_a_name_carries_it_to_the_endpoint_in_every_try_and_none_without(make_model, ask):
    flaky = {"text": "fine", "fault": {"kind": "status", "status": 500, "first_tries": 1}}
    async with MockEndpoint(Script.always(flaky)) as endpoint:
        model = make_model(endpoint.url)
        await ask(model, call_id="7-x-0badcafe.2.3.4")
        await ask(model, "and again")
    assert [call.call_id for call in endpoint.calls] == ["7-x-0badcafe.2.3.4"] * 2 + [""] * 2
