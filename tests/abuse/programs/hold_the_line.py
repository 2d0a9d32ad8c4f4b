"""A worker whose line to the sandbox is held open by a child that outlives it."""

# What it prints is its report:
# ruff: noqa: ASYNC251, T201
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.records import Records


async def main(folder: Path) -> None:
    await BubblewrapProvider(folder=folder).open(SandboxSpec(name="held", owner="held"))
    holder = os.fork()
    if not holder:
        os.close(1)
        time.sleep(1_000)
    print(json.dumps({"token": next(iter(Records(folder))).token, "holder": holder}), flush=True)
    await asyncio.sleep(1_000)


asyncio.run(main(Path(sys.argv[1])))
