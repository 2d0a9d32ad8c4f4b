"""As many connections as there are open calls, few when there are none."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess

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
