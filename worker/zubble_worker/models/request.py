"""What is sent: the conversation and the options in the words this endpoint understands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zubble_queue.contracts.envelope import Level
    from zubble_queue.contracts.model import CallOptions, Message
    from zubble_queue.contracts.model_config import Capabilities, ModelConfig


def request_body(config: ModelConfig, messages: Sequence[Message], options: CallOptions) -> bytes:
    """The JSON body of a streamed chat completion."""
    fields = request_fields(config, messages, options)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def request_fields(config: ModelConfig, messages: Sequence[Message], options: CallOptions) -> dict[str, Any]:
    """Its fields; what the endpoint does not understand is left out."""
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
    if options.prefix:
        _go_on(body, can, options.prefix)
    elif can.response_schema and options.response_schema:
        body |= _response_format(options)
    return body | thinking(can, options.level)


def stop_sequences(can: Capabilities, options: CallOptions) -> tuple[str, ...]:
    """The first `max_stop` of them, none where the endpoint refuses `stop`."""
    return options.stop[: can.max_stop] if can.stop else ()


def _response_format(options: CallOptions) -> dict[str, Any]:
    schema = {"name": "reply", "schema": options.response_schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _go_on(body: dict[str, Any], can: Capabilities, prefix: str) -> None:
    """Let the reply begin with the prefix. No schema: it would be enforced on the rest alone."""
    beginning: dict[str, Any] = {"role": "assistant", "content": prefix}
    match can.prefix:
        case "prefix_field":
            beginning["prefix"] = True
        case "continue_final_message":
            body |= {"continue_final_message": True, "add_generation_prompt": False}
    body["messages"].append(beginning)


def thinking(can: Capabilities, level: Level) -> dict[str, Any]:
    """The thinking level in the endpoint's own field; empty where there is nothing to say."""
    effort, thinks = can.reasoning_efforts.get(level), level != "off"
    named: dict[str, Any] = {"reasoning_effort": effort} if effort else {}
    match can.thinking:
        case "reasoning_effort":
            return named
        case "reasoning":
            return {"reasoning": {"effort": effort} if effort else {"enabled": thinks}}
        case "thinking":
            return {"thinking": {"type": "enabled" if thinks else "disabled"}, **named}
        case "enable_thinking":
            return {"enable_thinking": thinks, **named}
        case "chat_template_kwargs":
            asked = {"reasoning_effort": effort or level} if thinks else {}
            return {"chat_template_kwargs": {"enable_thinking": thinks, **asked}}
