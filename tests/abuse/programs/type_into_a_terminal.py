"""A worker on a terminal of its own, whose sandbox tries to type into it."""

# What it prints is its report:
# ruff: noqa: T201

import asyncio
import fcntl
import json
import os
import select
import termios

from zubble_queue.contracts.sandbox import Command, SandboxSpec
from zubble_sandbox.bubblewrap import BubblewrapProvider

ATTACK = """
import errno, fcntl, json, os
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
results = {}
for name in ("/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/console", "/dev/pts/0"):
    for request in (TIOCSTI, TIOCLINUX):
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
            for character in b"echo PWNED\\n":
                fcntl.ioctl(fd, request, bytes([character]))
            results[f"{name} {request}"] = "ok"
        except OSError as error:
            results[f"{name} {request}"] = errno.errorcode[error.errno]
print(json.dumps({key: value for key, value in results.items() if value not in ("ENOENT",)}))
"""


async def main() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sandbox = await BubblewrapProvider().open(SandboxSpec(name="typing", owner="typing"))
    result = await sandbox.exec(Command(("python3", "-I", "-S", "-c", ATTACK), timeout_seconds=60.0))
    assert result.ok, result
    await sandbox.destroy()
    waiting, _, _ = select.select([0], [], [], 0.2)
    typed = os.read(0, 4096).decode() if waiting else ""
    os.write(0, b"END")
    print(json.dumps({"attack": json.loads(result.stdout), "typed": typed}))


asyncio.run(main())
