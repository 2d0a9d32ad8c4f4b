"""A worker whose record names a process that did not end with it."""

# What it prints is its report:
# ruff: noqa: T201

import json
import subprocess
import sys
import time
from pathlib import Path

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.records import Record, Records

record = Record.new(backend="bubblewrap", spec=SandboxSpec("left", "leaver"))
Records(Path(sys.argv[1])).add(record)
stray = subprocess.Popen(
    [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)", record.token],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    start_new_session=True,
)
print(json.dumps({"stray": stray.pid, "token": record.token}), flush=True)
time.sleep(1_000)
