"""`[models.NAME] cli = {…}`: a program on the worker's machine that answers in place of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zubble_queue.contracts.frozen import FrozenMap

CliFormat = Literal["text", "claude", "gemini", "copilot"]
Preset = Literal["claude", "gemini", "copilot"]

PLACEHOLDERS: Final = ("{prompt}", "{model}", "{effort}", "{scratch}")
"""What stands for the prompt, the model's name, the effort's name, and the empty folder that it starts in."""

CONTINUE: Final = (
    "You are the assistant of a conversation that is given as a JSON array of messages. "
    "Answer with the text of the assistant's next message and nothing else."
)
_DENY_ALL: Final = '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "claude": {
        "command": (
            "claude",
            *("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            *("--tools", "", "--strict-mcp-config", "--setting-sources", "", "--disable-slash-commands"),
            *("--no-session-persistence", "--system-prompt", CONTINUE),
            *("--model={model}", "--effort={effort}"),
        ),
        "output": "claude",
    },
    "gemini": {
        "command": (
            "gemini",
            *("--output-format", "stream-json", "--approval-mode", "default", "--skip-trust"),
            *("--policy", "{scratch}/deny.toml", "--extensions", "none"),
            *("--allowed-mcp-server-names", "none", "--model={model}"),
        ),
        "output": "gemini",
        "files": {"deny.toml": _DENY_ALL},
    },
    "copilot": {
        "command": (
            "copilot",
            *(
                "--output-format",
                "json",
                "--stream",
                "on",
                "--available-tools=none",
                "--disable-builtin-mcps",
            ),
            *("--no-custom-instructions", "--no-auto-update", "--no-ask-user", "--no-remote", "--no-color"),
            *("--disable-client-telemetry", "--usage-output-file", "{scratch}/usage.json"),
            *("--model={model}", "--reasoning-effort={effort}"),
        ),
        "output": "copilot",
    },
}
"""Without tools, servers and instructions of their own: the program is a model here, not an agent.

Tried with claude 2.1.197, gemini 0.61.0 and copilot 1.0.102 against an endpoint that showed what they asked:
no tool was offered to the model."""


class CliTable(BaseModel):
    """How to start the program, and how to read it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    preset: Preset | None = None
    """Gives what is left out here."""
    command: tuple[str, ...] = ()
    """Program and arguments, started as they are, by no shell.

    An argument with `{model}` or `{effort}` is left out where there is none. The prompt is an argument where
    one holds `{prompt}`, else it is the standard input."""
    output: CliFormat = "text"
    """`text` is the reply itself; the others are the JSON lines of these programs."""
    environment: tuple[str, ...] = ()
    """Names of the worker's variables that it is given, beside PATH, HOME, LANG, LC_ALL, TZ and the key's."""
    files: FrozenMap[str, str] = Field(default_factory=dict, validate_default=True)
    """Name to content, written into the folder that it starts in."""

    @model_validator(mode="before")
    @classmethod
    def _knows_its_preset(cls, data: Any) -> Any:
        known = PRESETS.get(str(data.get("preset"))) if isinstance(data, Mapping) else None
        return {**known, **data} if known else data

    @field_validator("environment")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if not name.isidentifier()]:
            raise ValueError(f"environment holds names of variables, not {len(wrong)} other things")
        return names

    @field_validator("files")
    @classmethod
    def _are_plain_names(cls, files: Mapping[str, str]) -> Mapping[str, str]:
        if wrong := [name for name in files if not name.replace(".", "").replace("-", "").isalnum()]:
            raise ValueError(f"files must have plain names, as deny.toml, not {wrong[0]!r}")
        return files

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.command:
            raise ValueError("command is needed, as in ['my-model', '--quiet'], or a preset")
        return self
