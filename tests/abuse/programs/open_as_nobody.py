"""A worker that becomes an ordinary user, after it has imported what only root may read."""

# What it prints is its report:
# ruff: noqa: T201

import asyncio
import json
import os
import tempfile
from pathlib import Path

from zubble_queue.contracts.sandbox import Probe, SandboxSpec, shell
from zubble_sandbox.bubblewrap import BubblewrapProvider

NOBODY = 61_234
ASK = "python3 -c \"import urllib.request as u; u.urlopen('http://denied.example/', timeout=20)\""


async def attempt(folder: Path) -> tuple[Probe, list[int | None], str, str]:
    provider = BubblewrapProvider(folder=folder)
    probe = await provider.probe()
    boxes = [await provider.open(SandboxSpec(f"nobody-{n}", "nobody", pids=8)) for n in range(3)]
    results = [await box.exec(shell("sleep 0.1 & sleep 0.1 & wait")) for box in boxes]
    bomb = await boxes[0].exec(shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1 & done; wait"))
    boxes.append(await provider.open(SandboxSpec("nobody-online", "nobody", network="allowlist")))
    asked = await boxes[-1].exec(shell(ASK))
    for box in boxes:
        await box.destroy()
    return probe, [result.exit_code for result in results], bomb.stderr.decode(), asked.stderr.decode()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(attempt(Path(name) / "first"))
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        probe, exit_codes, bomb, asked = asyncio.run(attempt(Path(name) / "second"))
        found = {"uid": os.getuid(), "available": probe.available, "isolated": probe.isolated}
        found |= {"problems": probe.problems, "exit_codes": exit_codes, "bomb": bomb, "asked": asked}
        print(json.dumps(found), flush=True)
        os._exit(0)


main()
