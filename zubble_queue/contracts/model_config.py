"""One `[models.NAME]` table of zubble.toml: where a model is, what it can do and costs; never its key."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zubble_queue.contracts import identity
from zubble_queue.contracts.cli_config import CliTable
from zubble_queue.contracts.envelope import Level
from zubble_queue.contracts.frozen import FrozenMap
from zubble_queue.contracts.model import Price
from zubble_queue.contracts.providers import PROGRAMS, PROVIDERS, Provider
from zubble_queue.errors import BadInput

_STRICT: Final = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_KEY_NAMES: Final = frozenset({"apikey", "key", "token", "apitoken", "secret", "authorization", "password"})
_NO_KEYS: Final = (
    "a key must not stand in the configuration; name an environment variable in api_key_env, "
    "or a file in api_key_file."
)
_IDENTITY: Final = ("backend", "base_url", "model", "script", "cli", "price", "context", "capabilities")


class PriceTable(BaseModel):
    """USD per million tokens."""

    model_config = _STRICT

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """For the cached part of the prompt; the input price where it is left out (F3)."""

    def price(self) -> Price:
        return Price(self.input, self.output, self.cached)


class Capabilities(BaseModel):
    """What the endpoint understands; whatever it does not is left out of the request (C15)."""

    model_config = _STRICT

    stop: bool = True
    max_stop: int = Field(default=4, ge=1, le=64)
    """Stop sequences it accepts in one call; OpenAI takes four."""
    temperature: bool = True
    seed: bool = True
    response_schema: bool = False
    """`response_format` with a JSON schema."""
    stream_usage: bool = True
    """`stream_options.include_usage`."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal[
        "reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"
    ] = "reasoning_effort"
    """The field that takes the thinking level (Z23).

    `reasoning_effort`: the effort's name (OpenAI, Ollama, Gemini). `reasoning`: `{effort}` or `{enabled}`
    (OpenRouter). `thinking`: `{type: enabled | disabled}` (DeepSeek, GLM). `enable_thinking`: true or false
    (Qwen). `chat_template_kwargs`: `enable_thinking` and `reasoning_effort` in there (vLLM, llama.cpp)."""
    reasoning_efforts: FrozenMap[Level, str] = Field(default_factory=dict, validate_default=True)
    """Thinking level to the effort's name at the endpoint, as in {"low" = "low", "xhigh" = "high"}.

    Where it is empty no effort is sent. Where it is not, a level without an entry is refused before any
    request (F4); `off` without an entry sends none."""
    prefix: Literal["none", "last_message", "continue_final_message", "prefix_field"] = "none"
    """How the endpoint is told to go on from the beginning of a reply (C4), at thinking level `off` only.

    The beginning is the last message, the assistant's. `last_message`: that is enough (llama.cpp).
    `continue_final_message`: with this field, and `add_generation_prompt` false (vLLM, SGLang).
    `prefix_field`: the message has `prefix` true (Mistral; DeepSeek under /beta)."""


class ModelConfig(BaseModel):
    """How to reach one model.

    Raises:
        BadInput: A key stands in the table. The value appears in no message.
    """

    model_config = _STRICT

    backend: str = Field(default="openai", min_length=1)
    """A name of the entry-point group `zubble.models`."""
    base_url: str | None = None
    """As in `https://api.example.com/v1`; `/chat/completions` is added."""
    model: str | None = None
    """The name sent to the endpoint; the table's own name where it is left out."""
    script: str | None = None
    """Path of the script the `scripted` backend plays."""
    cli: CliTable | None = None
    """The program the `cli` backend starts."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable of the worker that holds the key."""
    api_key_file: str | None = Field(default=None, min_length=1)
    """The file on the worker's machine that holds the key and nothing else."""
    price: PriceTable | Literal["free", "genai-prices"] = "genai-prices"
    context: int = Field(default=128_000, ge=1_024)
    """Window in tokens, prompt and completion together."""
    provider: Provider | None = None
    """Whose endpoint it is: gives `capabilities` what is known of it, where the table itself does not."""
    capabilities: Capabilities = Field(default_factory=Capabilities)
    nudge_mode: Literal["next_turn", "restart_prefix"] | None = None
    """How a model is nudged whose reply begins to repeat itself (C4); where it is left out, `restart_prefix`
    if `capabilities.prefix` allows it."""
    connect_timeout_seconds: float = Field(default=10.0, gt=0, le=600)
    idle_timeout_seconds: float = Field(default=60.0, gt=0, le=3_600)
    """Longest silence between two pieces of the stream, and before the first."""
    retries: int = Field(default=5, ge=0, le=100)
    """Further tries after a call that failed before it delivered anything."""
    retry_base_seconds: float = Field(default=1.0, ge=0, le=60)
    """The n-th wait is drawn from 0 to base x 2^n."""
    max_retry_seconds: float = Field(default=60.0, ge=0, le=3_600)
    """Longest single wait; a Retry-After beyond it ends the call."""
    rpm: int | None = Field(default=None, ge=1)
    """Requests a minute over all workers."""
    tpm: int | None = Field(default=None, ge=1)
    """Tokens a minute over all workers."""
    concurrency: int | None = Field(default=None, ge=1)
    """Open calls over all workers."""

    @model_validator(mode="before")
    @classmethod
    def _holds_no_key(cls, data: Any) -> Any:
        named = sorted(name for name in data if is_key_name(name)) if isinstance(data, Mapping) else []
        if named:
            # BadInput, not ValueError: pydantic would keep the input, and with it the key, in its error.
            raise BadInput([f"{name}: {_NO_KEYS}" for name in named])
        return data

    @model_validator(mode="before")
    @classmethod
    def _knows_its_provider(cls, data: Any) -> Any:
        known = _known_of(data) if isinstance(data, Mapping) else None
        if known is None:
            return data
        given = data.get("capabilities") or {}
        if isinstance(given, Capabilities):
            given = given.model_dump(exclude_unset=True)
        return {**data, "capabilities": {**known, **given} if isinstance(given, Mapping) else given}

    @field_validator("base_url")
    @classmethod
    def _is_plain_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("base_url must be an http or https URL, as in http://127.0.0.1:8000/v1")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("base_url must hold no user, password, query or fragment")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.backend == "openai" and self.base_url is None:
            raise ValueError("base_url is needed, as in http://127.0.0.1:8000/v1")
        if self.backend == "scripted" and self.script is None:
            raise ValueError("script is needed: the path of the script to play")
        if self.backend == "cli" and self.cli is None:
            raise ValueError("cli is needed, as in {preset = 'claude'} or {command = ['my-model']}")
        if self.backend == "cli" and self.api_key_file:
            raise ValueError("api_key_file cannot be given to a program; use api_key_env")
        if self.api_key_env and self.api_key_file:
            raise ValueError("api_key_env and api_key_file exclude each other")
        if self.nudge_mode == "restart_prefix" and self.capabilities.prefix == "none":
            raise ValueError("nudge_mode restart_prefix needs capabilities.prefix: how the endpoint goes on")
        return self

    def named(self, name: str) -> ModelConfig:
        """The same table with the model's name filled in."""
        return self if self.model else self.model_copy(update={"model": name})

    def accepts(self, level: Level) -> bool:
        """Whether the thinking level can be asked for (F4)."""
        efforts = self.capabilities.reasoning_efforts
        return level == "off" or not efforts or level in efforts

    def continues(self, level: Level) -> bool:
        """Whether a reply at that level can go on from its beginning: one that thinks first cannot."""
        return self.capabilities.prefix != "none" and self.nudge_mode != "next_turn" and level == "off"

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is on this machine."""
        host = urlsplit(self.base_url or "").hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def place(self) -> str:
        """Where it is, in words for people."""
        return self.base_url or self.script or (self.cli.command[0] if self.cli else "its provider")

    def public_hash(self) -> str:
        """64 hex digits over what decides the answers and the price; nothing about the key or its place."""
        return identity.sha256(identity.canonical_json(self.model_dump(mode="json", include=set(_IDENTITY))))


def _known_of(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Capabilities of the provider or the program that a table names."""
    cli = table.get("cli")
    preset = cli.get("preset") if isinstance(cli, Mapping) else getattr(cli, "preset", None)
    return PROVIDERS.get(str(table.get("provider"))) or PROGRAMS.get(str(preset))


def is_key_name(name: object) -> bool:
    """Whether a setting of this name could only hold a secret."""
    return isinstance(name, str) and name.lower().replace("_", "").replace("-", "") in _KEY_NAMES
