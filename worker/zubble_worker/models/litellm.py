"""Any provider that LiteLLM knows, as a model of ours: one try at a time, and nothing but the protocol.

LiteLLM's retries, fallbacks, caches, callbacks and the fetching of its price table are off; retries, limits,
prices and the budget are ours as with every model. The key goes into each call and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from zubble_queue.errors import MissingExtra, OperatorError
from zubble_worker.models import chunk
from zubble_worker.models.configured import ConfiguredModel, most_pieces
from zubble_worker.models.failure import TryFailed, html_failure, http_failure, presentable
from zubble_worker.models.keys import checked_key, read_key
from zubble_worker.models.request import request_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from zubble_queue.contracts.model import CallOptions, Message, Reply, StreamWatcher
    from zubble_queue.contracts.model_config import ModelConfig
    from zubble_worker.models.assembly import Assembly

_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches one
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env
}
_SWITCHES: Final[dict[str, Any]] = {
    "suppress_debug_info": True,
    "disable_hf_tokenizer_download": True,
    "disable_streaming_logging": True,
    "drop_params": False,
    "num_retries": 0,
    "cache": None,
    "fallbacks": None,
    "REPEATED_STREAMING_CHUNK_LIMIT": 10**9,  # repetition is for our detector to judge
}
_CALLBACKS: Final = (
    *("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback"),
    *("_async_input_callback", "_async_success_callback", "_async_failure_callback"),
)
_OWN: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "temperature", "seed", "stop", "response_format"}
    | {"max_tokens", "max_completion_tokens", "reasoning_effort", "thinking"}
)
"""Fields that are arguments of LiteLLM; the others go into the request as they are."""
_NO_KEY: Final = "no-key"
"""Said where there is none; LiteLLM would look for one in the environment."""
_PATIENCE: Final = 2
"""LiteLLM's time limit over ours, so that ours is met first."""


class LitellmModel(ConfiguredModel):
    """One model, by the name that LiteLLM gives it, as in `anthropic/claude-sonnet-4-5`.

    Raises:
        NoKey: The key cannot be a header.
        OperatorError: The price is unknown, or the table names no model.
        MissingExtra: LiteLLM is not installed.
    """

    def __init__(self, config: ModelConfig, *, name: str, api_key: str | None = None) -> None:
        if config.model is None:
            raise OperatorError(f"Model {name!r} needs LiteLLM's name, as in model = 'provider/model'.")
        super().__init__(config, name)
        self._key = checked_key(api_key)
        self._litellm = _quiet_litellm()

    @classmethod
    def from_config(cls, name: str, config: ModelConfig) -> Self:
        """The model of the table `[models.NAME]`.

        Raises:
            NoKey: The key is missing or unreadable.
            OperatorError: The price is unknown, or the table names no model.
        """
        return cls(config, name=name, api_key=read_key(name, config))

    def __repr__(self) -> str:
        return f"LitellmModel({self._name!r} as {self._config.model})"

    async def query(self, messages: Sequence[Message], options: CallOptions, watch: StreamWatcher) -> Reply:
        """One streamed call, with its retries."""
        return await self._answer(
            messages, options, watch, partial(self._try, self._request(messages, options), options)
        )

    async def aclose(self) -> None:
        """LiteLLM keeps its connections for the whole process."""

    def _request(self, messages: Sequence[Message], options: CallOptions) -> dict[str, Any]:
        fields = request_fields(self._config, messages, options)
        known = {name: value for name, value in fields.items() if name in _OWN}
        body = {name: value for name, value in fields.items() if name not in _OWN}
        allowed = [name for name in ("reasoning_effort", "thinking", "seed", "stop") if name in known]
        headers = {"x-client-request-id": options.call_id} if options.call_id else {}
        return known | {
            "api_key": self._key or _NO_KEY,
            "base_url": self._config.base_url,
            "timeout": _PATIENCE * self._config.idle_timeout_seconds,
            "max_retries": 0,
            "num_retries": 0,
            "extra_headers": headers,
            "extra_body": body,
            "allowed_openai_params": allowed,
        }

    async def _try(self, request: dict[str, Any], options: CallOptions, assembly: Assembly) -> None:
        try:
            async with asyncio.timeout(self._config.idle_timeout_seconds):
                assembly.asked = True
                stream = await self._litellm.acompletion(**request)
        except TimeoutError as silent:
            raise self._silent() from silent
        except Exception as problem:
            assembly.asked = False
            raise self._failure(problem, assembly) from problem
        assembly.accepted = True
        try:
            if "html" in str(getattr(stream, "_response_headers", None) or {}):
                raise html_failure()
            await self._read(stream, options, assembly)
            if not any(getattr(piece, "usage", None) for piece in getattr(stream, "chunks", ())):
                assembly.reported = None  # LiteLLM has counted itself
        finally:
            await asyncio.shield(_closed(stream))

    async def _read(self, stream: AsyncIterator[Any], options: CallOptions, assembly: Assembly) -> None:
        most = most_pieces(options)
        while assembly.cut is None and assembly.pieces <= most:
            try:
                async with asyncio.timeout(self._config.idle_timeout_seconds):
                    piece = await anext(stream)
            except StopAsyncIteration:
                if assembly.finish_reason is None:
                    raise TryFailed(
                        "eof", "the stream ended before the answer did", may_be_billed=True
                    ) from None
                assembly.ended = True
                return
            except TimeoutError as silent:
                raise self._silent() from silent
            except Exception as problem:
                raise self._failure(problem, assembly) from problem
            chunk.take_object(piece.model_dump(exclude_none=True), assembly, self._key)

    def _silent(self) -> TryFailed:
        silence = f"nothing came for {self._config.idle_timeout_seconds:g} s"
        return TryFailed("idle", silence, may_be_billed=True)

    def _failure(self, problem: Exception, assembly: Assembly) -> TryFailed:
        """By what was raised first: LiteLLM wraps it, and invents a status where there was none."""
        known, chain = self._litellm.exceptions, [*_chain(problem)]
        answers = [one for one in chain if isinstance(getattr(one, "status_code", None), int)]
        said = _said(answers[-1] if answers else problem, self._key)
        if isinstance(problem, known.MidStreamFallbackError | known.APIConnectionError) or not answers:
            is_malformed = any(isinstance(one, ValueError) for one in chain)  # JSON and UTF-8 that are none
            cause = "malformed" if is_malformed else "reset" if assembly.accepted else "connect"
            return TryFailed(cause, said, may_be_billed=assembly.accepted)
        headers = getattr(getattr(answers[-1], "response", None), "headers", None) or {}
        retry_after = headers.get("retry-after")
        return http_failure(answers[-1].status_code, said, retry_after=retry_after)  # type: ignore[attr-defined]


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """The problem, what it wraps, and so on."""
    while problem is not None:
        yield problem
        problem = getattr(problem, "original_exception", None) or problem.__cause__ or problem.__context__


def _said(problem: BaseException, key: str | None) -> str:
    body = getattr(problem, "body", None)
    return chunk.error_message({"error": body}, key) if body else presentable(str(problem), key)


def _quiet_litellm() -> Any:
    """LiteLLM with all of its own doings off.

    It imports most of itself at its first call, for seconds; that is done here, before anything streams.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import litellm  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise MissingExtra("The model backend 'litellm'", "litellm") from missing

        for name, value in _SWITCHES.items():
            setattr(litellm, name, value)
        for name in _CALLBACKS:
            getattr(litellm, name, []).clear()
        litellm.completion(model="openai/any", messages=[{"role": "user", "content": ""}], mock_response="ok")
    return litellm


async def _closed(stream: Any) -> None:
    """Close the connection, as far as the provider's part of LiteLLM has a way to."""
    for holder in (stream, getattr(stream, "completion_stream", None)):
        close = getattr(holder, "aclose", None) or getattr(holder, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                ending = close()
                if asyncio.iscoroutine(ending):
                    await ending
