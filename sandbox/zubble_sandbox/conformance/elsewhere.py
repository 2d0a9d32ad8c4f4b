"""A worker of its own that opens a sandbox, starts a command in it and waits to be killed.

python -m zubble_sandbox.conformance.elsewhere BACKEND OPTIONS SPEC    the last two as JSON; prints the handle
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from importlib.metadata import entry_points

from zubble_queue.contracts.sandbox import SandboxProvider, SandboxSpec, shell
from zubble_sandbox import notes
from zubble_sandbox.conformance.base import exists, until

COMMAND = "echo kept >kept; echo >started; sleep 98765"
_GROUP = "zubble.sandboxes"


@contextlib.asynccontextmanager
async def opened_elsewhere(provider: SandboxProvider, spec: SandboxSpec) -> AsyncIterator[str]:
    """The handle of a sandbox whose worker runs a command in it, and is killed when the block ends.

    That worker makes its provider by its name and, where the given one has them, its `options`.
    """
    options = getattr(provider, "options", None)
    told = "{}" if options is None else options.model_dump_json(exclude_unset=True)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, provider.name, told, notes.note(spec)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    try:
        handle = (await worker.stdout.readline()).decode().strip()
        assert handle, "the other worker opened no sandbox"
        yield handle
    finally:
        worker.kill()
        await worker.wait()


async def _work(backend: str, options: str, spec: str) -> None:
    provider_class = next(iter(entry_points(group=_GROUP, name=backend))).load()
    provider = provider_class.from_options(provider_class.Options(**json.loads(options)))
    sandbox = await provider.open(notes.recalled(spec))
    running = asyncio.create_task(sandbox.exec(shell(COMMAND, timeout_seconds=3_600)))
    await until(lambda: exists(sandbox, "started"), "the command has started")
    print(sandbox.handle, flush=True)  # noqa: T201 - what it is asked for
    await running


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
