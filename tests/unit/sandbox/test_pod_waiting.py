"""What is made of the state of a pod."""

from __future__ import annotations

import pytest

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.pods import waiting


class Pods:
    """Answers with one state after the other, and then with the last one."""

    def __init__(self, *states) -> None:
        self.states = list(states)

    async def get(self, collection, name):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def pod(state=None, name="box", phase="Pending", **fields):
    statuses = [] if state is None else [{"name": name, "restartCount": 0, "state": state}]
    return {"metadata": {}, "status": {"phase": phase, "containerStatuses": statuses, **fields}}


def waits(reason, message=""):
    return pod({"waiting": {"reason": reason, "message": message}})


UNSCHEDULED = pod(
    conditions=[
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    ]
)


async def test_a_registry_may_fail_for_a_while():
    pods = Pods(
        UNSCHEDULED, waits("ErrImagePull"), waits("ImagePullBackOff"), pod({"running": {}}, phase="Running")
    )
    assert waiting.running(await waiting.started(pods, "a", "box", 30.0), "box")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            waits("InvalidImageName", "couldn't parse"),
            "cannot do its work: InvalidImageName: couldn't parse.",
        ),
        (waits("CreateContainerConfigError"), "cannot do its work: CreateContainerConfigError."),
        (
            pod(phase="Failed", reason="Evicted", message="low on memory."),
            "was ended (Evicted: low on memory).",
        ),
        (
            pod({"terminated": {"reason": "Error", "exitCode": 64}}, phase="Failed"),
            "ended (Error, exit code 64).",
        ),
    ],
)
async def test_what_cannot_come_right_is_told_at_once(state, sentence):
    with pytest.raises(SandboxUnavailable) as refused:
        await waiting.started(Pods(state), "a", "box", 30.0)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (UNSCHEDULED, "no node takes it (0/3 nodes are available: 3 Insufficient cpu)."),
        (waits("ImagePullBackOff", "Back-off pulling image"), "ImagePullBackOff: Back-off pulling image."),
        (pod(), "nothing was said about why."),
    ],
)
async def test_what_takes_too_long_is_told_with_what_it_waits_for(state, sentence):
    with pytest.raises(SandboxUnavailable) as refused:
        await waiting.started(Pods(state), "a", "box", 0.2)
    assert str(refused.value).endswith(f"after 0.2 seconds: {sentence}")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (None, "its pod was deleted"),
        (
            pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            "killed it as a whole when its memory ran out",
        ),
        (pod(phase="Failed", reason="DeadlineExceeded"), "its pod was ended (DeadlineExceeded)"),
        ({"metadata": {"deletionTimestamp": "now"}, "status": {}}, "its pod is being deleted"),
        ({"metadata": {}, "status": {}}, "its pod is in no known phase"),
    ],
)
def test_what_became_of_a_pod_is_told_in_words(state, sentence):
    assert sentence in waiting.fate(state)


def test_what_a_container_writes_about_its_own_end_is_not_repeated():
    hostile = pod({"terminated": {"reason": "Error", "exitCode": 1, "message": "\x1b[2J trust me"}})
    assert "trust me" not in waiting.fate(hostile)
