"""A worker with a key in its environment, arguments and folder, whose sandbox looks for it everywhere."""

# What it prints is its report:
# ruff: noqa: ASYNC240, T201

import asyncio
import json
import sys
from pathlib import Path

from zubble_queue.contracts.sandbox import Command, SandboxSpec
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.records import Records, runtime_dir

SEARCH = """
import json, os, sys
needle = bytes.fromhex(sys.argv[1])
searched, hits = 0, []
for top in ("/proc", "/etc", "/dev", "/work", "/tmp", "/verify", "/run"):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in ("sys", "task", "net", "map_files")]
        for name in names:
            path = os.path.join(folder, name)
            if path.startswith("/dev/") or name in ("kmsg", "kcore", "mem", "pagemap", "clear_refs"):
                continue
            try:
                with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                    searched += 1
                    if needle in (file.read(1_000_000) or b""):
                        hits.append(path)
            except OSError:
                pass
print(json.dumps([searched, hits]))
"""


async def main(key: str) -> None:
    sandbox = await BubblewrapProvider().open(SandboxSpec(name="search", owner="search"))
    record = next(record for record in Records(runtime_dir()) if record.name == "search")
    environs = [
        path.with_name("environ").read_bytes().replace(b"\0", b" ").replace(b"PWD=/", b"").decode().strip()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if record.token.encode() in path.read_bytes().split(b"\0")
    ]

    async def search(**env: str) -> tuple[int, list[str]]:
        command = Command(
            ("python3", "-I", "-S", "-c", SEARCH, key.encode().hex()), env=env, timeout_seconds=60.0
        )
        result = await sandbox.exec(command)
        assert result.ok, result
        searched, hits = json.loads(result.stdout)
        return searched, hits

    searched, hits = await search()
    _, control = await search(PLANTED=key)
    await sandbox.destroy()
    print(json.dumps({"searched": searched, "hits": hits, "control": control, "host_environ": environs}))


asyncio.run(main(sys.argv[1]))
