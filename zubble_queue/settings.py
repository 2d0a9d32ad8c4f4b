"""Settings, read once at start: flags over environment over zubble.toml over defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from zubble_queue.errors import BadInput

ENV_PREFIX: Final = "ZUBBLE_"
CONFIG_VARIABLE: Final = "ZUBBLE_CONFIG"


class LeaseSettings(BaseModel):
    """One setting; the others are derived from it (design: section 3.4)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease_seconds: float = Field(default=60.0, ge=2.0, le=3_600.0)

    @property
    def renew_seconds(self) -> float:
        return self.lease_seconds / 4

    @property
    def self_stop_seconds(self) -> float:
        """Without a renewal for this long, the attempt stops itself: before anyone may reap it."""
        return self.lease_seconds * 2 / 3
