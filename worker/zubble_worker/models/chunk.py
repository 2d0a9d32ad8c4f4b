"""One JSON value of an answer, whatever the endpoint put into it, taken into the assembly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from zubble_worker.models.assembly import MAX_TOOL_CALLS, Reported
from zubble_worker.models.failure import TryFailed, http_failure, presentable

if TYPE_CHECKING:
    from zubble_worker.models.assembly import Assembly

_REASONING_NAMES: Final = ("reasoning_content", "reasoning", "thinking")
"""DeepSeek, llama.cpp and older vLLM; newer vLLM, OpenRouter and Ollama; some proxies."""
_MAX_TOKENS: Final = 10**9
"""A report above it is nonsense."""


def take(payload: bytes, assembly: Assembly, key: str | None) -> None:
    """Take one chunk, or a whole answer.

    Raises:
        TryFailed: It is not JSON, or it is an error.
    """
    take_object(_parsed(payload), assembly, key)


def take_object(chunk: dict[str, Any], assembly: Assembly, key: str | None) -> None:
    """The same, parsed."""
    if chunk.get("error") or chunk.get("object") == "error":
        raise error_failure(chunk, key)
    assembly.served_model = _text(chunk.get("model")) or assembly.served_model
    assembly.reported = reported(chunk.get("usage")) or assembly.reported
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not choices:
        return
    choice = _object(choices[0])
    _take_delta(_object(choice.get("delta") or choice.get("message")), assembly)
    assembly.finish_reason = _text(choice.get("finish_reason")) or assembly.finish_reason
    if assembly.finish_reason == "error":
        raise TryFailed("error event", "the endpoint ended the answer with an error")


def error_failure(chunk: dict[str, Any], key: str | None) -> TryFailed:
    """The endpoint's error object; a numeric code is read as an HTTP status."""
    message, code = error_message(chunk, key), _object(chunk.get("error")).get("code", chunk.get("code"))
    if isinstance(code, int) and 400 <= code <= 599:
        return http_failure(code, message)
    return TryFailed("error event", message)


def error_message(body: Any, key: str | None) -> str:
    """What an error body says, fit to be shown."""
    error = _object(body).get("error", body)
    said = (
        _object(error).get("message") or _object(body).get("message") or _object(body).get("detail") or error
    )
    return presentable(said if isinstance(said, str) else json.dumps(said), key) or "no reason given"


def reported(usage: Any) -> Reported | None:
    """The usage object in the spellings of OpenAI and DeepSeek; None where it is missing or nonsense."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None or prompt + completion == 0:
        return None
    cached = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    reasoning = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return Reported(
        prompt, completion, cached or _count(usage.get("prompt_cache_hit_tokens")) or 0, reasoning or 0
    )


def _take_delta(delta: dict[str, Any], assembly: Assembly) -> None:
    for name in _REASONING_NAMES:
        if thought := delta.get(name):
            _take_content(thought, "reasoning", assembly)
            break
    if said := delta.get("content") or delta.get("refusal"):
        _take_content(said, "text", assembly)
    if calls := delta.get("tool_calls"):
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            _take_tool(position, _object(call), assembly)
    if function := delta.get("function_call"):
        _take_tool(0, {"function": function}, assembly)


def _take_content(content: Any, channel: Any, assembly: Assembly) -> None:
    """A string, or a list of parts where thinking parts belong to the reasoning channel (Mistral)."""
    if isinstance(content, str):
        assembly.feed(channel, content)
        return
    for part in content if isinstance(content, list) else ():
        piece = _object(part)
        if thinking := piece.get("thinking"):
            _take_content(thinking, "reasoning", assembly)
        elif text := _text(piece.get("text")):
            assembly.feed(channel, text)


def _take_tool(position: int, call: dict[str, Any], assembly: Assembly) -> None:
    function, index = _object(call.get("function")), call.get("index")
    if not isinstance(index, int) or not 0 <= index < MAX_TOOL_CALLS:
        index = position if call.get("id") else assembly.last_tool
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    assembly.tool(index, _text(function.get("name")), arguments or "")


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        chunk = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as problem:
        raise TryFailed("malformed", "a piece of the stream is not JSON", may_be_billed=True) from problem
    if not isinstance(chunk, dict):
        raise TryFailed("malformed", "a piece of the stream is no JSON object", may_be_billed=True)
    return chunk


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    """A token count; JSON's true is not one, and 12.0 from a careless proxy is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TOKENS:
        return None
    return int(value)
