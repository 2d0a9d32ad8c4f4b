"""A worker that opens sandboxes ahead: its tasks run in them, and none is left when it goes."""

from __future__ import annotations

import asyncio
import signal

from zubble_queue.testing import structured_reply as say
from zubble_sandbox.records import Records, runtime_dir

from .conftest import wait_until

TURNS = [
    say("plan", steps=["make the file", "submit"]),
    say("run", command="echo made > done.txt", plan_step_id=1),
    say("submit", report="it is there"),
]


async def test_tasks_run_in_sandboxes_that_were_open_and_none_is_left(install):
    zubble = await install(dict.fromkeys(("first", "second"), TURNS))
    worker = zubble.start_worker(ZUBBLE_WORKER__WARM_SANDBOXES="1")

    def names() -> list[str]:
        return [record.name for record in Records(runtime_dir()) if record.worker_pid == worker.pid]

    async def is_warm() -> bool:
        return any(name.startswith("warm-") for name in names())

    await zubble.submit(zubble.task("first"))
    assert (await zubble.sealed("first")).outcome == "verified"
    await wait_until(is_warm, "one is open ahead", evidence=zubble.log)
    await zubble.submit(zubble.task("second"))
    assert (await zubble.sealed("second")).outcome == "verified"
    worker.send_signal(signal.SIGTERM)

    assert await asyncio.to_thread(worker.wait, 60) == 0
    assert names() == []
