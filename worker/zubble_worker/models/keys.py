"""The endpoint's key: read where the worker's configuration says, and fit to be a header."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from zubble_queue.errors import NoKey
from zubble_queue.redaction import keep_out_of_logs

if TYPE_CHECKING:
    from zubble_queue.contracts.model_config import ModelConfig


def read_key(name: str, config: ModelConfig) -> str | None:
    """The key from where the table `[models.NAME]` says; None where it names no place.

    Raises:
        NoKey: It is not there; the message names the place, never the content.
    """
    if config.api_key_env is not None:
        key = os.environ.get(config.api_key_env, "")
        place = f"the environment variable {config.api_key_env}"
    elif config.api_key_file is not None:
        place = f"the file {config.api_key_file}"
        try:
            key = Path(config.api_key_file).expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise NoKey(f"The key of model {name!r} cannot be read from {place}.") from problem
    else:
        return None
    if not key.strip():
        raise NoKey(f"The key of model {name!r} is missing: {place} is empty or not set.")
    keep_out_of_logs(key)
    return key


def checked_key(key: str | None) -> str | None:
    """The key without its line end. Raises NoKey where it cannot stand in a header."""
    if key is None:
        return None
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise NoKey("The API key holds characters that cannot stand in a header.")
    return key
