"""What is made up for where an event of Celery's was lost, by the record of the task."""

from __future__ import annotations

import pytest

pytest.importorskip("flower")

from celery.events.state import State

from zubble_queue.contracts.ending import Ending, Stop, Usage, Verdict
from zubble_queue.contracts.record import TaskState, TaskView
from zubble_worker.flower_follower import Follower, missing_event

TASK = "1-a-00000000"


def view(attempt, state, ending=None, lease_until=None):
    return TaskView(
        task_id=TASK,
        batch="b",
        source_id="a",
        repeat=1,
        state=state,
        round=1,
        attempt=attempt,
        abnormal_ends=0,
        task_type="general",
        model="m",
        content_hash="0",
        cancel_requested=False,
        worker="w",
        created_at=0.0,
        claimed_at=None,
        sealed_at=None,
        lease_until=lease_until,
        usage=Usage(),
        ending=ending,
    )


PASSED = Ending(stop=Stop.SUBMITTED, verdict=Verdict.PASSED)
FAULTY = Ending(stop=Stop.INFRA)
GONE = Ending(stop=Stop.CANCELLED)


@pytest.mark.parametrize(
    ("attempt", "record", "started", "event"),
    [
        (1, view(0, TaskState.QUEUED), False, None),
        (1, view(0, TaskState.PAUSED), False, None),
        (1, view(0, TaskState.QUEUED), True, None),
        (1, view(1, TaskState.RUNNING), True, None),
        (1, view(1, TaskState.AWAITING_HUMAN, lease_until=9.0), True, None),
        (1, view(1, TaskState.AWAITING_HUMAN), True, ("task-succeeded", "'awaiting_human'")),
        (1, view(1, TaskState.RUNNING), False, ("task-revoked", None)),
        (
            1,
            view(1, TaskState.QUEUED),
            True,
            ("task-failed", "AttemptFailed('lost: no word from its worker')"),
        ),
        (
            1,
            view(2, TaskState.RUNNING),
            True,
            ("task-failed", "AttemptFailed('lost: no word from its worker')"),
        ),
        (1, view(1, TaskState.SEALED, PASSED), True, ("task-succeeded", "'verified $0.0000 0-it'")),
        (1, view(1, TaskState.SEALED, FAULTY), True, ("task-failed", "AttemptFailed('infra $0.0000 0-it')")),
        (1, view(1, TaskState.SEALED, GONE), True, ("task-revoked", None)),
        (2, view(1, TaskState.SEALED, PASSED), False, ("task-revoked", None)),
        (1, None, True, ("task-revoked", None)),
    ],
)
def test_an_attempt_is_shown_as_its_record_says(attempt, record, started, event):
    found = missing_event(attempt, record, started=started)

    shown = None if found is None else (found["type"], found.get("result") or found.get("exception"))
    assert shown == event


async def test_only_what_was_wrong_at_two_looks_is_mended_and_other_tasks_are_left_alone():
    state, records = State(), {TASK: view(2, TaskState.RUNNING)}
    for number, uuid in enumerate((f"{TASK}.1.1", f"{TASK}.2.1", "somebody-elses")):
        for kind in ("task-received", "task-started"):
            state.event(
                {
                    "type": kind,
                    "uuid": uuid,
                    "hostname": "w",
                    "timestamp": number,
                    "local_received": number,
                    "clock": 0,
                }
            )

    async def record(task_id):
        return records[task_id]

    follower = Follower(record, state)

    assert [await follower.look() for _ in range(3)] == [0, 1, 0]

    assert {uuid: task.state for uuid, task in state.tasks.items()} == {
        f"{TASK}.1.1": "FAILURE",
        f"{TASK}.2.1": "STARTED",
        "somebody-elses": "STARTED",
    }
