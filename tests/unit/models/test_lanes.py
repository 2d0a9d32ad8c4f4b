"""As many connections as there are open calls, few when there are none."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
import sys
import time

import pytest

from zubble_queue.errors import ModelUnavailable
from zubble_worker.models.mock_endpoint import MockEndpoint
from zubble_worker.models.script import Script


async def test_after_a_burst_only_some_connections_wait_for_the_next(make_model, ask, wait_until):
    slow = {"text": "a", "delay_seconds": 0.5}
    async with MockEndpoint(Script.always(slow)) as endpoint:
        model = make_model(endpoint.url, idle_timeout_seconds=60)
        burst = asyncio.gather(*(ask(model) for _ in range(100)))
        await wait_until(lambda: len(endpoint._server.connections) == 100, "each call has a connection")
        await burst
        await wait_until(lambda: len(endpoint._server.connections) <= 64, "the others are closed")
        await model.aclose()
        await wait_until(lambda: not endpoint._server.connections, "all are closed")


async def test_a_connection_the_endpoint_closed_meanwhile_is_replaced(make_model, ask):
    async with MockEndpoint(Script.always("a")) as endpoint:
        model = make_model(endpoint.url)
        await ask(model)
        for connection in tuple(endpoint._server.connections):
            connection.reset()
        assert (await ask(model)).text == "a"


@pytest.fixture
def endpoint_elsewhere(tmp_path):
    """The URL of one in another process: it goes on while ours stands still."""
    turn = {"text": "word " * 40, "delay_seconds": 0.02, "token_seconds": 0.002, "tokens_per_event": 4}
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [{"turns": [turn]}]}))
    command = [sys.executable, "-m", "zubble_queue.cli", "mock-endpoint", "--script", str(script), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        yield json.loads(running.stdout.readline())["url"]
        running.terminate()


async def test_after_a_call_that_was_cancelled_at_any_moment_the_next_one_is_made(
    make_model, ask, endpoint_elsewhere
):
    """Our process stands still; then answer, timeout and cancellation are all there, some turns apart."""
    hung = []
    for turns in (*range(7), *range(7)):
        model = make_model(endpoint_elsewhere, idle_timeout_seconds=0.05, connect_timeout_seconds=600)
        cancelled = asyncio.create_task(ask(model))
        await asyncio.sleep(0.015)
        time.sleep(0.1)  # noqa: ASYNC251 - that is the point
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        following = asyncio.create_task(ask(model))
        await asyncio.wait({following}, timeout=20)
        if not following.done():
            hung.append(turns)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await model.aclose()

    assert hung == []


@pytest.fixture
def untrusted(tmp_path, missing_part) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate made a moment ago."""
    if shutil.which("openssl") is None:
        missing_part("openssl is needed to make a certificate.")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=localhost"
    )
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


async def test_a_certificate_nobody_vouches_for_is_a_permanent_failure(make_model, ask, untrusted):
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=untrusted)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ModelUnavailable, match="CERTIFICATE_VERIFY_FAILED") as caught:
            await ask(make_model(f"https://127.0.0.1:{port}/v1"))
    assert caught.value.permanent
