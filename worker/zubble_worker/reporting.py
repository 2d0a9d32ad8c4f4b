"""The post-mortem that a repair leaves in a file (Z10), wherever in its place that is."""

from __future__ import annotations

import asyncio
import shlex
from typing import Final

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.sandbox import Sandbox, shell
from zubble_queue.errors import SandboxUnavailable

_PROTOCOL: Final = "repair"
"""The one that asks for it."""
_READ_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
"""A command that is still being ended may be in the way."""


async def report_of(envelope: TaskEnvelope, sandbox: Sandbox) -> bytes:
    """What is in `prompt.report_path`, its first and last 64 KiB; empty where nothing can be read.

    It is read by a command, because it may lie outside of the work tree.
    """
    if envelope.protocol != _PROTOCOL:
        return b""
    command = f"cat < {shlex.quote(envelope.prompt.report_path)}"
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await sandbox.thaw()
            shown = await sandbox.exec(shell(command, timeout_seconds=_READ_SECONDS))
    except (SandboxUnavailable, TimeoutError):
        return b""
    return shown.stdout if shown.ok else b""
