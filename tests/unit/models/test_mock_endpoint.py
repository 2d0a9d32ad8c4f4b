"""The mock endpoint over real HTTP: what it serves, and what its log says."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from zubble_worker.models.mock_endpoint import MockEndpoint
from zubble_worker.models.script import Script

TALK = [{"role": "user", "content": "task_id: 7-x\nhello"}]


@pytest.fixture
async def client():
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        yield client


def streamed(response: httpx.Response) -> list:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_an_answer_that_is_not_streamed_comes_in_one_piece(client):
    reply = {"reasoning": "hm", "text": "hello world", "tool_calls": [{"name": "run", "arguments": "{}"}]}
    async with MockEndpoint(Script.always(reply)) as endpoint:
        answer = (await client.post(f"{endpoint.url}/chat/completions", json={"messages": TALK})).json()
    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("hello world", "hm")
    assert message["tool_calls"][0]["function"] == {"name": "run", "arguments": "{}"}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"]["completion_tokens"] == 6


async def test_usage_is_streamed_only_to_those_who_ask_for_it(client):
    async with MockEndpoint(Script.always("hello")) as endpoint:
        url, body = f"{endpoint.url}/chat/completions", {"messages": TALK, "stream": True}
        without = streamed(await client.post(url, json=body))
        asked = streamed(await client.post(url, json=body | {"stream_options": {"include_usage": True}}))
    assert not any("usage" in chunk for chunk in without)
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] == 1


async def test_an_sdks_content_parts_and_single_stop_are_understood(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "say "}, {"type": "text", "text": "it"}]}]
    script = Script.model_validate({"rules": [{"when": {"contains": "say it"}, "turns": ["one two"]}]})
    async with MockEndpoint(script) as endpoint:
        answer = await client.post(
            f"{endpoint.url}/chat/completions", json={"messages": parts, "stop": " two"}
        )
    assert answer.json()["choices"][0]["message"]["content"] == "one"


async def test_the_log_knows_the_task_the_tokens_and_that_a_key_came_but_never_the_key(client):
    script = Script.model_validate(
        {"rules": [{"name": "all", "turns": ["a b c"]}], "marker": r"task_id: (\S+)"}
    )
    async with MockEndpoint(script) as endpoint:
        url, headers = f"{endpoint.url}/chat/completions", {"authorization": "Bearer sk-very-secret"}
        await client.post(url, json={"model": "m", "messages": TALK, "stream": True}, headers=headers)
        await client.post(url, json={"model": "m", "messages": TALK, "max_tokens": 2})
        log = (await client.get(f"{endpoint.url.removesuffix('/v1')}/log")).text
    assert "sk-very-secret" not in log
    first, second = json.loads(log)
    assert (first["marker"], first["rule"], first["turn"], first["model"]) == ("7-x", "all", 0, "m")
    assert (first["prompt_tokens"], first["completion_tokens"], first["finish"]) == (11, 3, "stop")
    assert (first["authorization"], first["stream"], first["done"]) == (True, True, True)
    assert (second["completion_tokens"], second["finish"]) == (2, "length")
    assert (second["authorization"], second["stream"]) == (False, False)


async def test_a_client_that_leaves_is_noticed_and_what_it_got_is_counted(client, wait_until):
    endless = {"text": [{"repeat": "word ", "times": 20_000}], "token_seconds": 0.001}
    async with MockEndpoint(Script.always(endless)) as endpoint:
        body = {"messages": TALK, "stream": True}
        async with client.stream("POST", f"{endpoint.url}/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line:
                    break
        await wait_until(lambda: endpoint.calls[0].done, "the endpoint has noticed")
        call = endpoint.calls[0]
    assert (call.aborted, call.finish) == (True, "")
    assert 1 <= call.completion_tokens < 20_000


async def test_a_client_that_does_not_read_is_waited_for(wait_until):
    long = {"text": [{"repeat": "word ", "times": 100_000}]}
    async with MockEndpoint(Script.always(long)) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint._server.port, limit=1_024)
        body = json.dumps({"messages": TALK, "stream": True}).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await wait_until(
            lambda: any(not connection._writable.is_set() for connection in endpoint._server.connections),
            "its buffers are full",
        )
        assert endpoint.calls[0].completion_tokens < 100_000
        assert not endpoint.calls[0].done
        writer.close()
        await wait_until(lambda: endpoint.calls[0].done, "the endpoint has noticed")
        assert endpoint.calls[0].aborted
        assert not reader.at_eof()


async def test_stopping_ends_open_calls_as_aborted(client, wait_until):
    async with MockEndpoint(Script.always({"text": "a", "fault": {"kind": "stall"}})) as endpoint:
        asking = asyncio.create_task(
            client.post(f"{endpoint.url}/chat/completions", json={"messages": TALK, "stream": True})
        )
        await wait_until(lambda: endpoint.calls, "the call is open")
    with pytest.raises(httpx.HTTPError):
        await asking
    assert endpoint.calls[0].aborted
    assert endpoint.calls[0].finish == "stall"


async def test_models_and_health_answer(client):
    rules = [{"when": {"model": "b"}, "turns": ["x"]}, {"when": {"model": "a"}, "turns": ["x"]}]
    async with MockEndpoint(Script.model_validate({"rules": rules})) as endpoint:
        models = (await client.get(f"{endpoint.url}/models")).json()
        health = (await client.get(f"{endpoint.url.removesuffix('/v1')}/health")).json()
    assert [model["id"] for model in models["data"]] == ["a", "b"]
    assert health == {"status": "ok", "calls": 0}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not json", "not a chat completion request"),
        (b"[]", "not a chat completion request"),
        (b"{}", "not a chat completion request"),
        (b'{"messages": [{"content": "x"}]}', "not a chat completion request"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "no rule of the script fits"),
    ],
)
async def test_a_request_it_cannot_answer_gets_an_error_with_a_reason(client, body, message):
    script = Script.model_validate({"rules": [{"when": {"contains": "never"}, "turns": ["x"]}]})
    async with MockEndpoint(script) as endpoint:
        answer = await client.post(f"{endpoint.url}/chat/completions", content=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


async def test_an_unknown_path_is_not_found(client):
    async with MockEndpoint(Script.always("x")) as endpoint:
        assert (await client.get(f"{endpoint.url}/embeddings")).status_code == 404


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"431"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(raw, status):
    async with MockEndpoint(Script.always("x")) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint._server.port)
        writer.write(raw)
        assert (await asyncio.wait_for(reader.read(), 20)).split(b" ")[1] == status
        writer.close()


async def test_requests_sent_in_a_row_on_one_connection_are_answered_in_order():
    async with MockEndpoint(Script.always("x")) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint._server.port)
        writer.write(b"GET /health HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\nconnection: close\r\n\r\n")
        answers = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert answers.index(b"200 OK") < answers.index(b"404 Not Found")


async def test_a_port_in_use_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await MockEndpoint(Script.always("x"), port=taken.getsockname()[1]).start()


async def test_requests_are_kept_only_where_that_was_asked_for(client):
    async with (
        MockEndpoint(Script.always("x"), keep_requests=True) as keeping,
        MockEndpoint(Script.always("x")) as forgetting,
    ):
        for endpoint in (keeping, forgetting):
            await client.post(f"{endpoint.url}/chat/completions", json={"messages": TALK})
    assert keeping.calls[0].request == {"messages": TALK}
    assert forgetting.calls[0].request is None
    assert "request" not in keeping.log()[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_a_file_ends_cleanly_on_a_signal(tmp_path, number):
    (tmp_path / "script.jsonl").write_text('{"turns": ["hello"]}\n')
    program = (
        "import sys, pathlib; from zubble_worker.models.mock_endpoint import serve;"
        "serve(pathlib.Path(sys.argv[1]), on_ready=lambda url: print(url, flush=True)); print('ended')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "script.jsonl")], stdout=subprocess.PIPE, text=True
    )
    with process:
        url = process.stdout.readline().strip()
        answer = httpx.post(f"{url}/chat/completions", json={"messages": TALK}, trust_env=False)
        process.send_signal(number)
        assert process.stdout.read() == "ended\n"
    assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert process.returncode == 0
