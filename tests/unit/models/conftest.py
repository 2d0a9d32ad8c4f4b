"""An endpoint made of raw bytes, and models that wait for nothing."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import pytest

from zubble_queue.contracts.model import CallOptions, Message
from zubble_queue.contracts.model_config import ModelConfig
from zubble_queue.testing import RecordingWatcher
from zubble_worker.models.openai import OpenAIModel

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@dataclass
class RawEndpoint:
    """Sends the same bytes to everybody, and remembers what it was sent."""

    answer: list[bytes]
    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[dict] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = next(
                int(line.split(":")[1])
                for line in head.split("\r\n")
                if line.lower().startswith("content-length")
            )
            self.bodies.append(json.loads(await reader.readexactly(length)))
            for piece in self.answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def raw_endpoint(stack):
    """Start an endpoint that answers with these bytes, in these pieces."""

    async def start(*answer: bytes) -> RawEndpoint:
        endpoint = RawEndpoint(list(answer))
        server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, limit=2**24)
        endpoint.port = server.sockets[0].getsockname()[1]

        async def stop():
            server.close()
            await server.wait_closed()

        stack.push_async_callback(stop)
        return endpoint

    return start


@pytest.fixture
def sse(raw_endpoint):
    """Start an endpoint that streams these JSON values, then [DONE] unless told otherwise."""

    async def start(*chunks, done=True) -> RawEndpoint:
        events = [
            b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n" for c in chunks
        ]
        return await raw_endpoint(STREAM_HEAD, *events, *([b"data: [DONE]\n\n"] if done else []))

    return start


@pytest.fixture
def make_model(stack):
    """A model on that URL, free and without waits."""

    def make(url: str, *, api_key: str | None = None, **table) -> OpenAIModel:
        quick = {
            "model": "m",
            "price": "free",
            "retries": 1,
            "retry_base_seconds": 0,
            "idle_timeout_seconds": 2,
        }
        model = OpenAIModel(ModelConfig.model_validate(quick | {"base_url": url} | table), api_key=api_key)
        stack.push_async_callback(model.aclose)
        return model

    return make


@pytest.fixture
def ask():
    """One query with ordinary options."""

    async def query(model, text="say something", watch=None, **options):
        options = CallOptions(**({"max_tokens": 1_000, "deadline_seconds": 30.0} | options))
        return await model.query([Message("user", text)], options, watch or RecordingWatcher())

    return query


@pytest.fixture
def wait_until():
    async def wait(predicate, what, *, seconds=20.0):
        end = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > end:
                pytest.fail(f"not within {seconds} s: {what}")
            await asyncio.sleep(0.005)

    return wait
