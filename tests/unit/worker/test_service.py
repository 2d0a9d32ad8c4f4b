"""The service between a message and its attempt, with a store that answers when a test wants it to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zubble_queue.artifacts import ArtifactStore
from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Usage
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import Claim, Lease, Refused, WorkerInfo
from zubble_queue.contracts.task import TaskInput
from zubble_queue.errors import StoreUnavailable
from zubble_queue.settings import LeaseSettings
from zubble_worker.service import Service
from zubble_worker.tools import Tools

INFO = WorkerInfo(worker_id="w", version="0", host="h", pid=1, slots=1, busy=0)
ENVELOPE = TaskEnvelope(
    batch="b",
    source_id="one",
    model="m",
    task=TaskInput(
        task_id=identity.task_id("b", "one", 1),
        description="Do it.",
        allowed_tools=("shell",),
        success_criteria="It is done.",
        verify_command="true",
    ),
)
HEADER = ENVELOPE.header(epoch=1)


class Store:
    """Answers claims from a list; remembers them and what was given back."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.lease_ids: list[str] = []
        self.released: list[str] = []

    async def claim(self, header: Any, *, worker_id: str, lease_id: str) -> Any:
        self.lease_ids.append(lease_id)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(lease_id) if callable(answer) else answer

    async def release(self, lease: Lease, *, cause: str) -> None:
        self.released.append(cause)


def service(store: Store, tmp_path: Path) -> Service:
    tools = Tools(
        worker_id="w",
        store=store,  # type: ignore[arg-type]
        artifacts=ArtifactStore(str(tmp_path)),
        models={},
        providers={},
        lease=LeaseSettings(),
    )
    return Service(tools, INFO)


def granted(lease_id: str) -> Claim:
    lease = Lease(ENVELOPE.task_id, "b", 1, lease_id)
    return Claim(lease, ENVELOPE, Usage(), 0.0, None, 0, "none")


async def test_a_claim_whose_answer_was_lost_is_made_again_under_the_same_lease_id(tmp_path):
    store = Store(StoreUnavailable("gone"), StoreUnavailable("gone"), Refused("sealed"))

    done = await service(store, tmp_path).run(HEADER)

    assert (done.how, done.cause) == ("dropped", "sealed")
    assert len(store.lease_ids) == 3
    assert len(set(store.lease_ids)) == 1


async def test_two_claims_have_two_lease_ids(tmp_path):
    store = Store(Refused("sealed"), Refused("sealed"))
    both = service(store, tmp_path)

    await both.run(HEADER)
    await both.run(HEADER)

    assert len(set(store.lease_ids)) == 2


async def test_what_was_granted_while_the_worker_was_told_to_leave_is_given_back_uncharged(tmp_path):
    store = Store()
    leaving = service(store, tmp_path)

    def granted_late(lease_id: str) -> Claim:
        leaving.drain()
        return granted(lease_id)

    store.answers.append(granted_late)

    done = await leaving.run(HEADER)

    assert done.how == "released"
    assert store.released == ["handover"]
    assert leaving.busy == 0


async def test_a_worker_that_was_told_to_leave_claims_nothing(tmp_path):
    store = Store()
    leaving = service(store, tmp_path)
    leaving.drain()

    assert (await leaving.run(HEADER)).cause == "draining"
    assert store.lease_ids == []
