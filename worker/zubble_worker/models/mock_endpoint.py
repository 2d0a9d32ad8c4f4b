"""A scripted OpenAI-compatible endpoint over real HTTP, for tests, demos and benchmarks.

It serves POST /v1/chat/completions (streamed or whole), GET /v1/models, /health and /log. The log is the
independent account of what was asked and delivered: it counts what left the endpoint, also where the client
hung up, and never holds a key.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from zubble_worker.models import wire
from zubble_worker.models.mock_delivery import Call, Delivery, refuse
from zubble_worker.models.mock_http import ClientGone, Exchange, HttpServer, Request
from zubble_worker.models.performance import count_prompt_tokens, perform
from zubble_worker.models.script import Prompt, Script, Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_LOGGED_CALLS: Final = 100_000


class MockEndpoint:
    """An endpoint that plays a script; an asynchronous context manager.

    Args:
        script: What to answer.
        host: Where to listen; a loopback address.
        port: 0 takes a free one.
        keep_requests: Keep each request's body in its Call, for tests that look at prompts.
    """

    def __init__(
        self, script: Script, host: str = "127.0.0.1", port: int = 0, *, keep_requests: bool = False
    ) -> None:
        self.script = script
        self.calls: deque[Call] = deque(maxlen=_LOGGED_CALLS)
        self._keep_requests = keep_requests
        self._tries = Tries()
        self._server = HttpServer(self._handle, host, port)

    @property
    def url(self) -> str:
        """The base URL, with /v1."""
        return f"http://{self._server.host}:{self._server.port}/v1"

    async def start(self) -> None:
        """Raises OSError when the address is not to be had."""
        await self._server.start()

    async def stop(self) -> None:
        """Close every connection; open calls are logged as aborted."""
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    def log(self) -> list[dict[str, Any]]:
        """All calls as JSON values, oldest first, without the requests' bodies."""
        return [{k: v for k, v in asdict(call).items() if k != "request"} for call in self.calls]

    async def _handle(self, request: Request, exchange: Exchange) -> None:
        match request.method, request.path.rstrip("/"):
            case "POST", "/v1/chat/completions":
                await self._complete(request, exchange)
            case "GET", "/v1/models":
                names = sorted({rule.when.model or "scripted" for rule in self.script.rules})
                models = [{"id": name, "object": "model"} for name in names]
                await exchange.send_json(200, {"object": "list", "data": models})
            case "GET", "/health":
                await exchange.send_json(200, {"status": "ok", "calls": len(self.calls)})
            case "GET", "/log":
                await exchange.send_json(200, self.log())
            case _:
                await exchange.send_json(404, wire.error(f"no {request.method} {request.path} here"))

    async def _complete(self, request: Request, exchange: Exchange) -> None:
        try:
            asked = _Asked.read(request.body)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            await exchange.send_json(400, wire.error(f"not a chat completion request: {problem!r}"))
            return
        call = self._opened(asked, request.headers)
        started = time.monotonic()
        try:
            await self._answer(asked, call, exchange)
        except (asyncio.CancelledError, ClientGone):
            call.aborted = True
            raise
        finally:
            call.done, call.seconds = True, time.monotonic() - started

    def _opened(self, asked: _Asked, headers: Mapping[str, str]) -> Call:
        call = Call(
            time=time.time(),
            model=asked.prompt.model,
            call_id=headers.get("x-client-request-id", ""),
            marker=self.script.marker_of(asked.prompt),
            turn=asked.prompt.turn,
            prompt_tokens=count_prompt_tokens(asked.prompt),
            authorization="authorization" in headers,
            stream=asked.stream,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            request=asked.body if self._keep_requests else None,
        )
        self.calls.append(call)
        return call

    async def _answer(self, asked: _Asked, call: Call, exchange: Exchange) -> None:
        cue = self.script.cue(asked.prompt)
        if cue is None:
            call.status, call.finish = 400, "no rule"
            await exchange.send_json(400, wire.error("no rule of the script fits this prompt"))
            return
        call.rule = cue.rule
        fault = self._tries.fault(cue, asked.prompt)
        if fault is not None and fault.kind in {"status", "html"}:
            await refuse(fault, call, exchange)
            return
        played = perform(cue.reply, max_tokens=asked.max_tokens, stop=asked.stop)
        delivery = Delivery(call, exchange, cue.reply, played, fault)
        if asked.stream:
            await delivery.stream(include_usage=asked.include_usage)
        else:
            await delivery.whole()


def serve(
    script: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a script file until SIGINT or SIGTERM.

    Args:
        script: A .json or .jsonl script.
        host: Where to listen.
        port: 0 takes a free one.
        on_ready: Called with the base URL once the endpoint answers.

    Raises:
        BadInput: The script cannot be read; one sentence per problem.
        OSError: The address is not to be had.
    """
    asyncio.run(_serve(MockEndpoint(Script.load(script), host, port), on_ready))


async def _serve(endpoint: MockEndpoint, on_ready: Callable[[str], None] | None) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with endpoint:
        if on_ready is not None:
            on_ready(endpoint.url)
        await ended.wait()


@dataclass(frozen=True)
class _Asked:
    """A request's body, read."""

    prompt: Prompt
    stream: bool
    include_usage: bool
    max_tokens: int | None
    stop: tuple[str, ...]
    body: dict[str, Any]

    @classmethod
    def read(cls, body: bytes) -> Self:
        data = json.loads(body)
        stop = data.get("stop") or ()
        limit = data.get("max_completion_tokens", data.get("max_tokens"))
        return cls(
            prompt=Prompt(str(data.get("model", "")), tuple(map(_role_and_content, data["messages"]))),
            stream=bool(data.get("stream")),
            include_usage=bool((data.get("stream_options") or {}).get("include_usage")),
            max_tokens=None if limit is None else int(limit),
            stop=(stop,) if isinstance(stop, str) else tuple(str(sequence) for sequence in stop),
            body=data,
        )


def _role_and_content(message: dict[str, Any]) -> tuple[str, str]:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    return str(message["role"]), content
