"""One command in a sandbox of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from zubble_queue.contracts.sandbox import Command, CommandResult, SandboxProvider, SandboxSpec


async def exec_once(
    provider: SandboxProvider, argv: Sequence[str], timeout_seconds: float, *, spec: SandboxSpec | None = None
) -> CommandResult:
    """Open, run, destroy. Raises SandboxUnavailable when there is no sandbox to be had.

    Args:
        provider: Where to run it.
        argv: The command, as it is; no shell looks at it.
        timeout_seconds: The command's, without the time to open the sandbox.
        spec: Sizes and network; defaults with a name of its own when None.
    """
    name = f"once-{secrets.token_hex(4)}"
    sandbox = await provider.open(spec or SandboxSpec(name=name, owner=f"once-{os.getpid()}"))
    try:
        return await sandbox.exec(Command(argv=tuple(argv), timeout_seconds=timeout_seconds))
    finally:
        await sandbox.destroy()
