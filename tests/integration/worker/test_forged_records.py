"""Records that somebody wrote into Redis behind our back: a real worker reads them, and runs none."""

from __future__ import annotations

import json

from zubble_queue.testing import structured_reply as say

TURNS = [
    say("plan", steps=["make the file", "submit"]),
    say("run", command="echo made > done.txt", plan_step_id=1),
    say("submit", report="it is there"),
]
FORGED = {
    "privileged": {"privileged": True},
    "mounted": {"mounts": [{"source": "/", "target": "/host"}]},
    "docker": {"volumes": ["/var/run/docker.sock:/var/run/docker.sock"]},
    "pids": {"host_pid": True},
    "opened": {"network": "open"},
    "unlimited": {"memory_mb": 0},
    "bare": {"backend": "local"},
    "odd": {"surprise": 1},
}
REASONS = {
    "privileged": "the envelope cannot be read: sandbox: privileged: no task may reach out",
    "mounted": "the envelope cannot be read: sandbox: mounts: no task may reach out",
    "docker": "the envelope cannot be read: sandbox: volumes: no task may reach out",
    "pids": "the envelope cannot be read: sandbox: host_pid: no task may reach out",
    "opened": "sandbox.network 'open' is not allowed on this worker",
    "unlimited": "the envelope cannot be read: sandbox.memory_mb: Input should be greater than or equal",
    "bare": "sandbox 'local' is not allowed on this worker (allowed: bubblewrap)",
    "odd": "the envelope cannot be read: sandbox.surprise: Extra inputs are not permitted",
    "swapped": "the envelope is that of another task, ",
}


async def test_a_forged_record_is_sealed_invalid_and_runs_nothing(install):
    zubble = await install(dict.fromkeys((*REASONS, "honest"), TURNS))
    tasks = {name: zubble.task(name) for name in (*REASONS, "honest")}
    await zubble.submit(*tasks.values())
    client, keys = zubble.store._client, zubble.store._keys
    texts = {name: json.loads(task.model_dump_json()) for name, task in tasks.items()}
    for name, forged in FORGED.items():
        texts[name]["sandbox"] |= forged
    texts["swapped"] = texts["honest"]
    for name in REASONS:
        await client.hset(keys.task(tasks[name].task_id), "envelope", json.dumps(texts[name]))

    zubble.start_worker(slots=4)

    assert (await zubble.sealed("honest")).outcome == "verified"
    for name, reason in REASONS.items():
        view = await zubble.sealed(name)
        assert (view.outcome, view.attempt, view.usage.calls) == ("invalid", 1, 0), name
        assert view.ending.reason.startswith(reason), name
    assert len(zubble.endpoint.calls) == len(TURNS)
