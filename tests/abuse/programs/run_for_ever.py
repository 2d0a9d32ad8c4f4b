"""A worker in the middle of a command, with daemons, waiting to be killed."""

# What it prints is its report:
# ruff: noqa: ASYNC110, T201

import asyncio
import json
import sys
from pathlib import Path

from zubble_queue.contracts.sandbox import SandboxSpec, shell
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.records import Records


async def main(folder: Path) -> None:
    sandbox = await BubblewrapProvider(folder=folder).open(SandboxSpec(name="forever", owner="forever"))
    text = "trap '' HUP TERM; setsid -f sleep 98761; (setsid sleep 98761 &) & echo >begun; sleep 98761"
    running = asyncio.create_task(sandbox.exec(shell(text, timeout_seconds=3_000.0)))
    while not any(entry.path == "begun" for entry in await sandbox.list()):
        await asyncio.sleep(0.02)
    print(json.dumps({"token": next(iter(Records(folder))).token}), flush=True)
    await running


asyncio.run(main(Path(sys.argv[1])))
