"""Forks workers that open a sandbox, and kills each a little later into it than the one before."""

# What it prints is its report:
# ruff: noqa: T201

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.bubblewrap import BubblewrapProvider


async def open_one(folder: Path, ready: int) -> None:
    provider = BubblewrapProvider(folder=folder)
    await provider.probe()
    os.write(ready, b"x")
    for number in range(1_000):
        name = f"dying-{os.getpid()}-{number}"
        await provider.open(SandboxSpec(name, owner="dying", network="allowlist"))


def main(folder: Path, count: int) -> None:
    killed = 0
    for number in range(count):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            asyncio.run(open_one(folder, write))
            os._exit(1)
        os.read(read, 1)
        time.sleep(number * 0.003)
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        os.close(read)
        os.close(write)
    print(json.dumps({"killed": killed}))


main(Path(sys.argv[1]), int(sys.argv[2]))
