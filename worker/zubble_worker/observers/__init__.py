"""Detectors: pure objects that see loops, in the stream and between steps. No I/O, no clock."""

from __future__ import annotations

from typing import Literal

Scope = Literal["stream", "context", "task"]
"""What begins anew: one reply, the model's context (C37), or the whole task."""
