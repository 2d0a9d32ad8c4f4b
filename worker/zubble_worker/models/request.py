"""What is sent: the conversation and the options in the words this endpoint understands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.model import CallOptions, Message
    from zubble_queue.contracts.model_config import Capabilities, ModelConfig


def request_body(config: ModelConfig, messages: Sequence[Message], options: CallOptions) -> bytes:
    """The JSON body of a streamed chat completion; what the endpoint does not understand is left out."""
    can = config.capabilities
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "stream": True,
        can.max_tokens_field: options.max_tokens,
    }
    body |= {"stream_options": {"include_usage": True}} if can.stream_usage else {}
    body |= {"temperature": options.temperature} if can.temperature else {}
    body |= {"seed": options.seed} if can.seed and options.seed is not None else {}
    body |= {"stop": list(stop)} if (stop := stop_sequences(can, options)) else {}
    body |= _response_format(options) if can.response_schema and options.response_schema else {}
    body |= _thinking(can, options)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def stop_sequences(can: Capabilities, options: CallOptions) -> tuple[str, ...]:
    """The first `max_stop` of them, none where the endpoint refuses `stop`."""
    return options.stop[: can.max_stop] if can.stop else ()


def _response_format(options: CallOptions) -> dict[str, Any]:
    schema = {"name": "reply", "schema": options.response_schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _thinking(can: Capabilities, options: CallOptions) -> dict[str, Any]:
    effort = can.reasoning_efforts.get(options.level)
    if not can.chat_template_kwargs:
        return {"reasoning_effort": effort} if effort else {}
    switches: dict[str, Any] = {"enable_thinking": options.level != "off"}
    if options.level != "off":
        switches["reasoning_effort"] = effort or options.level
    return {"chat_template_kwargs": switches}
