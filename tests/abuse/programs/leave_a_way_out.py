"""Open a sandbox with an allow-list, name the folder of its way out and its handle, and wait to be killed.

python leave_a_way_out.py RECORDS_FOLDER LINGER_SECONDS
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.bubblewrap import BubblewrapProvider


async def main(folder: Path, linger_seconds: float) -> None:
    spec = SandboxSpec(
        name="out",
        owner="out",
        network="allowlist",
        allowed_hosts=("allowed.example",),
        linger_seconds=linger_seconds,
    )
    sandbox = await BubblewrapProvider(folder=folder).open(spec)
    assert sandbox.way_out is not None
    sys.stdout.write(f"{sandbox.way_out.folder} {sandbox.handle}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
