"""Any OpenAI-compatible endpoint, streamed over httpx: vLLM, llama.cpp, Ollama, hosted APIs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from zubble_queue.errors import OperatorError
from zubble_worker.models import chunk
from zubble_worker.models.configured import ConfiguredModel, most_pieces
from zubble_worker.models.failure import TryFailed, html_failure, http_failure, presentable
from zubble_worker.models.keys import checked_key, read_key
from zubble_worker.models.lanes import Lanes
from zubble_worker.models.request import request_body
from zubble_worker.models.sse import MAX_EVENT_BYTES, EventTooLarge, SseParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.model import CallOptions, Message, Reply, StreamWatcher
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_worker.models.assembly import Assembly

_DONE: Final = b"[DONE]"
_MAX_STREAM_BYTES: Final = 256 * 1_048_576
_MAX_ERROR_BYTES: Final = 65_536
_GOODBYE_SECONDS: Final = 1.0
"""How long the end of the HTTP answer may lag behind the end of the stream, to use the connection again."""


class OpenAIModel(ConfiguredModel):
    """One model behind `POST {base_url}/chat/completions`.

    Args:
        config: Its table.
        name: What it is called here; the name sent to the endpoint where it is left out.
        api_key: Sent as a bearer token; held here and nowhere else.

    Raises:
        NoKey: The key cannot be a header.
        OperatorError: The price is unknown.
    """

    def __init__(self, config: ModelConfig, *, name: str | None = None, api_key: str | None = None) -> None:
        if config.model is None:
            raise OperatorError("A model needs a name to be asked for: use config.named(NAME).")
        super().__init__(config, name or config.model)
        self._key = checked_key(api_key)
        self._url = f"{config.base_url}/chat/completions"
        self._headers = _headers(self._key)
        self._lanes = Lanes(config)

    @classmethod
    def from_config(cls, name: str, config: ModelConfig) -> Self:
        """The model of the table `[models.NAME]`, with the key from where the table says.

        Raises:
            NoKey: The key is missing or unreadable.
        OperatorError: The price is unknown.
        """
        return cls(config.named(name), name=name, api_key=read_key(name, config))

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r} at {self._config.base_url})"

    async def query(self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher) -> Reply:
        """One streamed call, with its retries."""
        body = request_body(self._config, messages, options)
        return await self._answer(messages, options, watch, partial(self._try, body, options))

    async def aclose(self) -> None:
        await self._lanes.aclose()

    async def _try(self, body: bytes, options: CallOptions, assembly: Assembly) -> None:
        async def trace(event: str, _info: Any) -> None:
            assembly.asked |= event == "http11.send_request_body.complete"

        try:
            async with (
                self._lanes.client() as client,
                client.stream(
                    "POST",
                    self._url,
                    content=body,
                    headers=self._headers | _call_header(options),
                    timeout=_timeout(self._config),
                    extensions={"trace": trace},
                ) as response,
            ):
                await self._read(response, options, assembly)
        except httpx.HTTPError as problem:
            raise self._transport_failure(problem, assembly) from problem
        except httpx.InvalidURL as problem:
            raise TryFailed("url", str(problem), permanent=True) from problem

    async def _read(self, response: httpx.Response, options: CallOptions, assembly: Assembly) -> None:
        if response.status_code != httpx.codes.OK:
            raise await self._refusal(response)
        kind = response.headers.get("content-type", "").lower()
        if "html" in kind:
            raise html_failure()
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TryFailed(
                "encoding", "the answer is compressed although we did not ask for it", permanent=True
            )
        assembly.asked = assembly.accepted = True
        if "json" in kind and "ndjson" not in kind:
            await self._read_whole(response, assembly)
        else:
            await self._read_stream(response, options, assembly)

    async def _read_whole(self, response: httpx.Response, assembly: Assembly) -> None:
        """An endpoint that does not stream."""
        body = await _up_to(response, MAX_EVENT_BYTES)
        chunk.take(body, assembly, self._key)
        if assembly.finish_reason is None and not assembly.delivered:
            raise TryFailed("malformed", "the endpoint's JSON is no chat completion", permanent=True)
        assembly.ended = True

    async def _read_stream(self, response: httpx.Response, options: CallOptions, assembly: Assembly) -> None:
        parser, received = SseParser(), 0
        most = most_pieces(options)
        stream = response.aiter_raw()
        async for data in stream:
            if not received and data.lstrip().startswith(b"<"):
                raise html_failure()
            received += len(data)
            if self._take_all(_events(parser, data, assembly), assembly):
                await _drain(stream)
                return
            if assembly.cut is not None or assembly.pieces > most:
                return
            if received > _MAX_STREAM_BYTES:
                raise TryFailed("too large", f"the answer is longer than {_MAX_STREAM_BYTES} bytes")
        if not self._take_all(parser.flush(), assembly):
            _check_end(assembly, said_done=False)

    def _take_all(self, events: list[bytes], assembly: Assembly) -> bool:
        """True when the stream has said that it is done."""
        for event in events:
            if event == _DONE:
                _check_end(assembly, said_done=True)
                return True
            chunk.take(event, assembly, self._key)
            if assembly.cut is not None:
                break
        return False

    async def _refusal(self, response: httpx.Response) -> TryFailed:
        status = response.status_code
        if status < httpx.codes.BAD_REQUEST:
            return TryFailed(
                f"http {status}", "no answer to a chat completion; base_url may be wrong", permanent=True
            )
        body = _json(await _up_to(response, _MAX_ERROR_BYTES))
        error = body.get("error") if isinstance(body, dict) else None
        code = error.get("code") if isinstance(error, dict) else ""
        return http_failure(
            status,
            chunk.error_message(body, self._key),
            code=code if isinstance(code, str) else "",
            retry_after=response.headers.get("retry-after"),
        )

    def _transport_failure(self, problem: httpx.HTTPError, assembly: Assembly) -> TryFailed:
        said = presentable(f"{type(problem).__name__} {problem}", self._key)
        match problem:
            case httpx.ReadTimeout():
                silence = f"nothing came for {self._config.idle_timeout_seconds:g} s"
                return TryFailed("idle", silence, may_be_billed=assembly.asked)
            case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.PoolTimeout() | httpx.ProxyError():
                return TryFailed("connect", said, permanent=_is_untrusted(problem))
            case httpx.UnsupportedProtocol() | httpx.LocalProtocolError():
                return TryFailed("request", said, permanent=True)
        return TryFailed("reset", said, may_be_billed=assembly.accepted)


def _headers(key: str | None) -> dict[str, str]:
    plain = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
    }
    return plain | ({"authorization": f"Bearer {key}"} if key else {})


def _call_header(options: CallOptions) -> dict[str, str]:
    """The call's own name, as the OpenAI API takes it; whoever asks a provider about a bill needs it."""
    return {"x-client-request-id": options.call_id} if options.call_id else {}


def _timeout(config: ModelConfig) -> httpx.Timeout:
    idle = config.idle_timeout_seconds
    connect = config.connect_timeout_seconds
    return httpx.Timeout(connect=connect, read=idle, write=idle, pool=connect)


def _events(parser: SseParser, data: bytes, assembly: Assembly) -> list[bytes]:
    try:
        return parser.feed(data)
    except EventTooLarge as problem:
        assembly.dropped_bytes += problem.size
        raise TryFailed("too large", str(problem)) from problem


def _check_end(assembly: Assembly, *, said_done: bool) -> None:
    """A stream may leave out its [DONE] or its finish_reason; it may not end before the answer has."""
    if assembly.finish_reason is None and not (said_done and assembly.delivered):
        raise TryFailed("eof", "the stream ended before the answer did", may_be_billed=True)
    assembly.ended = True


async def _drain(stream: Any) -> None:
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_GOODBYE_SECONDS):
            async for _ in stream:
                pass


async def _up_to(response: httpx.Response, size: int) -> bytes:
    """The body's first bytes; what follows is left."""
    body = bytearray()
    async for data in response.aiter_raw():
        body += data
        if len(body) > size:
            break
    return bytes(body[:size])


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return "a web page" if text.lstrip().startswith("<") else text


def _is_untrusted(problem: BaseException | None) -> bool:
    while problem is not None:
        if isinstance(problem, ssl.SSLCertVerificationError):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
