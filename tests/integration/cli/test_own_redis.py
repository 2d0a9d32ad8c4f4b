"""The same commands with a server that the settings name: dispatcher, worker and user are strangers."""

from __future__ import annotations

import signal

import pytest

from zubble_queue.embedded import Embedded


@pytest.fixture
def installation(ready):
    """A server at a URL, which for us is a Redis of the user's own."""
    with Embedded(ready.folder / "server") as server:
        ready.environment["ZUBBLE_REDIS_URL"] = server.url
        yield ready


def test_a_batch_goes_through_dispatcher_and_worker(installation):
    user = installation
    user.tasks("good-1", "good-2")

    submitted = user.zubble(*user.SUBMIT)
    assert submitted.code == 0
    assert "Warning: no worker is alive" in submitted.err
    assert "Warning: nobody feeds the queue" in submitted.err

    dispatcher = user.start("dispatcher")
    worker = user.start("worker", "--no-feeder", "--slots", "2")
    watched = user.zubble("batch", "watch", "b", "--json")
    strong = user.zubble(*user.SUBMIT, "--batch", "strong", "--min-strength", "kernel")
    need = "pool 'default', sandbox 'local' at strength 'kernel' or more and model 'mock' together"
    assert f"Warning: no living worker has {need}; 2 tasks wait for one." in strong.problems
    shown = user.zubble("batch", "show", "strong")
    assert f"  no living worker has {need}; 2 tasks wait for one" in shown.out.splitlines()
    shown = user.zubble("task", "show", "good-1", "--batch", "strong", "--json")
    assert (shown.json["state"], shown.json["unserved"]) == ("queued", True)
    assert (watched.code, watched.json["outcomes"]) == (0, {"verified": 2})
    assert watched.out.count("\n") == 1

    user.write("zubble.toml", '[models.mock]\nbase_url = "http://127.0.0.1:1/v1"\nprice = "free"\n')
    again = user.zubble(*user.SUBMIT)
    assert "a worker defines the model 'mock' otherwise" in again.err
    user.write("zubble.toml", "")
    by_worker = user.zubble(*user.SUBMIT, "--json")
    assert (by_worker.code, by_worker.json["existing"]) == (0, 2)

    for process in (worker, dispatcher):
        process.send_signal(signal.SIGTERM)
        assert user.finish(process).code == 0


def test_detaching_from_a_watched_batch_leaves_it_alone(installation):
    user = installation
    user.tasks("good-1")
    process = user.start(*user.SUBMIT, "--wait", "--json")
    user.wait_until(lambda: process.poll() is not None or _waits(process.pid), "the command waits")

    process.send_signal(signal.SIGINT)
    said = user.finish(process)

    assert (said.code, said.json["detached"], said.json["resume"]) == (130, True, "zubble batch watch b")
    assert user.zubble("batch", "show", "b", "--json").json["states"] == {"queued": 1}


def _waits(pid):
    """Whether the process catches SIGINT by asyncio, as it does when it has begun to wait."""
    from pathlib import Path

    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_local_workers_cannot_be_had_with_a_server_of_ones_own(installation):
    said = installation.zubble("up")

    assert said.code == 2
    assert said.problems == [
        "`zubble up` starts its own server, but redis_url names one: use `zubble worker`."
    ]
