"""The bytes of an OpenAI-compatible answer, as the mock endpoint sends them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from zubble_worker.models.performance import Performance, Piece

_ID: Final = "chatcmpl-scripted"
DONE: Final = b"data: [DONE]\n\n"


def usage(prompt: int, completion: int, *, cached: int, reasoning: int) -> dict[str, Any]:
    """The `usage` object."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": min(cached, prompt)},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def error(message: str, code: int | str = "scripted") -> dict[str, Any]:
    """The `error` object an endpoint answers with."""
    return {"error": {"message": message, "type": "scripted_error", "code": code}}


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


class Chunks:
    """The events of one stream. What is equal in all of them is encoded once."""

    def __init__(self, model: str) -> None:
        self._common = {"id": _ID, "object": "chat.completion.chunk", "created": 0, "model": model}
        head, tail = event(self._chunk({"content": "@"}, None)).split(b'"content":"@"')
        self._text = head + b'"content":', tail
        self._reasoning = head + b'"reasoning_content":', tail

    def piece(self, piece: Piece) -> bytes:
        if piece.channel == "tool":
            return event(self._chunk({"tool_calls": [_tool_delta(piece)]}, None))
        before, after = self._text if piece.channel == "text" else self._reasoning
        return before + json.dumps(piece.text).encode() + after

    def finish(self, reason: str) -> bytes:
        return event(self._chunk({}, reason))

    def usage(self, value: dict[str, Any]) -> bytes:
        """The last event, without choices."""
        return event({**self._common, "choices": [], "usage": value})

    def raw_text(self, text: bytes) -> bytes:
        """A delta with these very bytes between its quotes."""
        before, after = self._text
        return before + b'"' + text + b'"' + after

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {**self._common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def whole_answer(model: str, played: Performance, counted: dict[str, Any] | None) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    message = {
        "role": "assistant",
        "content": _joined(played, "text"),
        "reasoning_content": _joined(played, "reasoning"),
        "tool_calls": _tool_calls(played),
    }
    choice = {"index": 0, "message": {k: v for k, v in message.items() if v}, "finish_reason": played.finish}
    answer = {"id": _ID, "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
    return answer | ({"usage": counted} if counted else {})


def _tool_delta(piece: Piece) -> dict[str, Any]:
    if piece.opens_tool:
        named = {"id": f"call_{piece.tool}", "type": "function", "function": {"name": piece.text}}
        return {"index": piece.tool, **named}
    return {"index": piece.tool, "function": {"arguments": piece.text}}


def _joined(played: Performance, channel: str) -> str:
    return "".join(piece.text for piece in played.pieces if piece.channel == channel)


def _tool_calls(played: Performance) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for piece in played.pieces:
        if piece.opens_tool:
            calls.append({"id": f"call_{piece.tool}", "type": "function", "function": {"name": piece.text}})
        elif piece.channel == "tool":
            function = calls[piece.tool]["function"]
            function["arguments"] = function.get("arguments", "") + piece.text
    return calls
