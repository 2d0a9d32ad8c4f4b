"""Whose a container is, as its labels and its name say."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox.engine.labels import Found, Record, Worker

SPEC = SandboxSpec(
    name="task.1", owner="worker", scratch=("/logs",), readonly_files={"/verify/key": b"answer"}
)
UIDS = range(20_000, 20_100)
OURS = Worker.this()
DEAD = replace(OURS, started="1")
ELSEWHERE = replace(OURS, place="0" * 12)


def listed(worker=OURS, *, spec=SPEC, record=None, **changes):
    record = record or Record.new(spec, UIDS)
    name = f"/{worker.name_of(record.token)}"
    labels = record.labels(spec)
    return {"Id": "id", "Names": [name], "State": "running", "Labels": labels, "ImageID": "image", **changes}


def test_a_container_is_read_back_without_its_read_only_files():
    found = Found.read(listed())
    assert found.spec == replace(SPEC, readonly_files={})
    assert (found.worker, found.alive) == (OURS, True)
    assert "answer" not in str(listed())


@pytest.mark.parametrize(
    "changes",
    [
        {"Names": ["/other"]},
        {"Names": []},
        {"Labels": {}},
        {"Labels": {"zubble.record": "[]", "zubble.spec": "1"}},
    ],
)
def test_a_container_of_somebody_else_or_of_another_version_is_left_alone(changes):
    assert Found.read(listed(**changes)) is None


@pytest.mark.parametrize(
    ("worker", "state", "linger", "orphaned"),
    [
        (OURS, "running", 0.0, False),
        (OURS, "exited", 0.0, False),
        (DEAD, "running", 0.0, True),
        (DEAD, "created", 0.0, True),
        (DEAD, "running", 60.0, False),
        (DEAD, "exited", 60.0, True),
        (ELSEWHERE, "running", 0.0, False),
        (ELSEWHERE, "exited", 0.0, False),
    ],
)
def test_only_what_nobody_will_miss_is_an_orphan(worker, state, linger, orphaned):
    spec = replace(SPEC, linger_seconds=linger)
    assert Found.read(listed(worker, spec=spec, State=state)).orphaned is orphaned


@pytest.mark.parametrize("worker", [OURS, DEAD, ELSEWHERE])
def test_whatever_its_worker_it_is_an_orphan_when_its_time_is_over(worker):
    record = replace(Record.new(SPEC, UIDS), expires=time.time() - 1)
    assert Found.read(listed(worker, record=record)).orphaned
