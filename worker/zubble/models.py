"""Models for a standalone agent, and how it asks them to think (Z16, Z23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from zubble_queue import registry
from zubble_queue.contracts.envelope import Level
from zubble_queue.contracts.model import Model
from zubble_queue.contracts.model_config import Capabilities, ModelConfig, PriceTable
from zubble_queue.errors import BadInput
from zubble_queue.formats.lines import sentences

_EFFORTS: Final[dict[str, Level]] = {
    "none": "off",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "xhigh",
    "xhigh": "xhigh",
}
_KNOWN: Final = ("level", "enable_thinking", "reasoning_effort", "chat_template_kwargs")


def openai_model(
    model: str,
    base: str,
    *,
    price: PriceTable | Literal["free", "genai-prices"] = "free",
    api_key_env: str | None = None,
    context: int = 128_000,
    chat_template_kwargs: bool = True,
) -> Model:
    """A model behind an OpenAI-compatible endpoint.

    Args:
        model: Its name there.
        base: As in `http://127.0.0.1:8000/v1`; `/v1` is added where the URL has no path.
        price: Free by default, which is right for an endpoint of one's own.
        api_key_env: The environment variable that holds the key.
        context: Its window in tokens.
        chat_template_kwargs: Whether it takes `enable_thinking` and `reasoning_effort`, as llama.cpp and
            vLLM do; hosted APIs may refuse them.

    Raises:
        BadInput: One sentence per argument that cannot be used.
        NoKey: The key is missing.
        MissingExtra: The extra `worker` is not installed.
    """
    url = base if urlsplit(base).path.strip("/") else f"{base.rstrip('/')}/v1"
    try:
        config = ModelConfig(
            base_url=url,
            model=model,
            price=price,
            api_key_env=api_key_env,
            context=context,
            capabilities=Capabilities(thinking="chat_template_kwargs")
            if chat_template_kwargs
            else Capabilities(),
        )
    except ValidationError as invalid:
        raise BadInput(sentences(invalid, renamed={"base_url": "base"})) from invalid
    made: Model = registry.load("model", config.backend).from_config(model, config)
    return made


def level_of(kwargs: Mapping[str, Any] | None) -> Level:
    """The thinking level in `{"level": "xhigh"}`, or in the words of chat templates.

    Those are `enable_thinking` and `reasoning_effort`, also inside `chat_template_kwargs`; thinking without
    an effort is `medium`.

    Raises:
        BadInput: A key or a value that is not known.
    """
    given = dict(kwargs or {})
    given |= given.pop("chat_template_kwargs", None) or {}
    if unknown := sorted(set(given) - set(_KNOWN)):
        raise BadInput([f"level_kwargs: {name!r} is not one of {', '.join(_KNOWN)}." for name in unknown])
    if (level := given.get("level")) is not None:
        if level not in get_args(Level):
            raise BadInput(
                [f"level_kwargs: level must be one of {', '.join(get_args(Level))}, not {level!r}."]
            )
        return level  # type: ignore[no-any-return]  # checked above
    effort = given.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        raise BadInput(
            [f"level_kwargs: reasoning_effort must be one of {', '.join(_EFFORTS)}, not {effort!r}."]
        )
    if given.get("enable_thinking") is False:
        return "off"
    return _EFFORTS[effort] if effort is not None else "medium" if given.get("enable_thinking") else "off"
