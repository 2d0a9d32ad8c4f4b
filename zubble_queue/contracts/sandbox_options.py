"""What a backend can be told: its `[sandboxes.NAME]` table of zubble.toml, which it alone understands."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict

from zubble_queue.contracts.sandbox import SandboxProvider


def split(value: Any) -> Any:
    """`a,b` from the environment means what ["a", "b"] means in the file."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(split)]
"""A list of names; from the environment comma-separated."""


class SandboxOptions(BaseModel):
    """The base of every backend's options; a backend without any uses it as it is.

    A field that names a file or folder of this machine is called `file` or `folder`, or ends in `_file` or
    `_folder`: the settings make it absolute, below the folder of the zubble.toml that said it. No field holds
    a key, a token or a password: the settings refuse names like these; name a file or a variable instead.
    From the environment every value is a text, as in ZUBBLE_SANDBOXES__DOCKER__IMAGE=debian:12.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SandboxBackend(Protocol):
    """What an entry point of the group `zubble.sandboxes` names: a class that makes its own providers."""

    Options: type[SandboxOptions]

    @classmethod
    def from_options(cls, options: Any) -> SandboxProvider:
        """Open nothing yet. `options` is an instance of `Options`."""
