"""What known providers understand, so that `[models.NAME] provider = "vllm"` need not spell it out.

Each entry is a part of `capabilities`; what the table gives itself goes before it. Sources: the providers'
API references and, for local servers, their handling of a last message that is the assistant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

Provider = Literal["openai", "vllm", "llama.cpp", "ollama", "deepseek", "openrouter", "mistral", "qwen"]

_PLAIN_EFFORTS: Final = {"low": "low", "medium": "medium", "xhigh": "high"}
_MANY_STOPS: Final = 16

PROVIDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "openai": {
        "max_tokens_field": "max_completion_tokens",
        "response_schema": True,
        "reasoning_efforts": _PLAIN_EFFORTS,
    },
    "vllm": {
        "max_stop": _MANY_STOPS,
        "response_schema": True,
        "thinking": "chat_template_kwargs",
        "prefix": "continue_final_message",
    },
    "llama.cpp": {
        "max_stop": _MANY_STOPS,
        "response_schema": True,
        "thinking": "chat_template_kwargs",
        "prefix": "last_message",
    },
    "ollama": {
        "max_stop": _MANY_STOPS,
        "response_schema": True,
        "reasoning_efforts": {"off": "none", **_PLAIN_EFFORTS},
    },
    "deepseek": {"max_stop": _MANY_STOPS, "seed": False, "thinking": "thinking"},
    "openrouter": {"response_schema": True, "thinking": "reasoning", "reasoning_efforts": _PLAIN_EFFORTS},
    "mistral": {"seed": False, "stream_usage": False, "prefix": "prefix_field"},
    "qwen": {"thinking": "enable_thinking"},
}

PROGRAMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "claude": {"reasoning_efforts": {"low": "low", "medium": "medium", "xhigh": "xhigh"}},
    "copilot": {"reasoning_efforts": {"off": "none", "low": "low", "medium": "medium", "xhigh": "xhigh"}},
}
"""The same for the presets of the `cli` backend."""
