"""Whole attempts by real worker processes: claimed over Celery, run in bubblewrap, verified, sealed once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from zubble_queue.contracts.ending import Stop, Verdict
from zubble_queue.contracts.event import Event
from zubble_queue.contracts.task import LoopBudget
from zubble_queue.testing import structured_reply as say
from zubble_worker.app import CeleryPublisher

from .conftest import BATCH, LEASE_SECONDS, SECRET, wait_until

PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
SUBMIT = say("submit", report="it is there")


def step(number: int, *more: str) -> str:
    command = f"echo step-{number} >> log.txt; " + "; ".join(more)
    return say("run", command=command.rstrip("; "), plan_step_id=number)


async def test_a_task_is_run_verified_and_sealed(install):
    zubble = await install({"good": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("good"))
    zubble.start_worker()

    view = await zubble.sealed("good")

    assert view.ending is not None
    assert (view.outcome, view.ending.stop, view.ending.verdict) == (
        "verified",
        Stop.SUBMITTED,
        Verdict.PASSED,
    )
    assert view.ending.files_touched == ("done.txt",)
    assert view.ending.lines_added == 1
    assert view.ending.isolation == "bubblewrap"
    assert view.ending.report == "it is there"
    assert view.ending.iterations_used == 3
    assert view.attempt == 1


async def test_what_the_endpoint_counted_is_what_the_record_says(install):
    zubble = await install({"good": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("good"))
    zubble.start_worker()

    view = await zubble.sealed("good")

    calls = zubble.endpoint.calls
    prompt = sum(call.prompt_tokens for call in calls)
    completion = sum(call.completion_tokens for call in calls)
    assert (view.usage.calls, view.usage.prompt_tokens, view.usage.completion_tokens) == (
        3,
        prompt,
        completion,
    )
    exact = prompt * 3 + completion * 15
    assert exact <= view.usage.spend_micro_usd <= exact + len(calls)


async def test_the_whole_record_is_kept_as_one_event_log(install):
    zubble = await install({"good": [PLAN, MAKE, SUBMIT]})
    await zubble.submit(zubble.task("good"))
    zubble.start_worker()

    view = await zubble.sealed("good")

    assert view.ending is not None
    lines = zubble.artifacts.get(view.ending.artifacts["trajectory"]).splitlines()
    events = [Event.model_validate_json(line) for line in lines]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    types = [event.type for event in events]
    assert types[:2] == ["accepted", "claimed"]
    assert types[-1] == "stopped"
    assert "preflight_finished" in types
    assert [event.data["command"] for event in events if event.type == "command_finished"] == [
        "echo made > done.txt"
    ]


async def test_a_limit_is_an_outcome_and_a_passing_tree_has_passed(install):
    zubble = await install({"late": [PLAN, MAKE, say("run", command="true")], "never": [PLAN]})
    budget = LoopBudget(max_iterations=3)
    await zubble.submit(zubble.task("late", budget=budget), zubble.task("never", budget=budget))
    zubble.start_worker()

    late, never = await zubble.sealed("late"), await zubble.sealed("never")

    assert late.ending is not None
    assert (late.outcome, late.ending.stop) == ("verified", Stop.LIMIT_ITERATIONS)
    assert never.outcome == "limit:iterations"


async def test_a_check_that_passes_untouched_or_cannot_run_makes_the_task_invalid(install):
    zubble = await install({"empty": [PLAN], "missing": [PLAN]})
    await zubble.submit(
        zubble.task("empty", verify_command="true"), zubble.task("missing", verify_command="no-such-program")
    )
    zubble.start_worker()

    empty, missing = await zubble.sealed("empty"), await zubble.sealed("missing")

    assert (empty.outcome, missing.outcome) == ("invalid", "invalid")
    assert empty.ending is not None
    assert missing.ending is not None
    assert "proves nothing" in empty.ending.reason
    assert "exit code 127" in missing.ending.reason
    assert list(zubble.endpoint.calls) == []


async def test_a_sandbox_the_worker_does_not_allow_is_refused_at_the_claim(install):
    """Such a task is never announced to the worker; here a forged message tells it of one all the same."""
    zubble = await install({"bare": [PLAN]})
    bare = zubble.task("bare", sandbox={"backend": "local"})
    await zubble.submit(bare)
    zubble.start_worker()
    publisher = CeleryPublisher(zubble.settings())
    await publisher.publish([bare.header(epoch=1).model_copy(update={"sandbox": "bubblewrap"})])
    await publisher.aclose()

    view = await zubble.sealed("bare")

    assert view.outcome == "invalid"
    assert view.ending is not None
    assert "'local' is not allowed on this worker (allowed: bubblewrap)" in view.ending.reason


async def test_a_killed_worker_costs_no_finished_step(install):
    """Three steps; the worker dies after the second; the first is executed once."""
    finish = say("run", command="echo step-3 >> log.txt; cp log.txt done.txt", plan_step_id=3)
    silent = {"text": finish, "fault": {"kind": "stall", "after_tokens": 2}}
    # The next attempt goes on after step 1 or 2, as the last checkpoint has it: both are in its script.
    again = [PLAN, step(1), step(2), finish, SUBMIT]
    zubble = await install({"long": [PLAN, step(1), step(2), silent]}, after_restart=again)
    await zubble.submit(zubble.task("long"))
    first = zubble.start_worker()
    task_id = zubble.task("long").task_id

    async def third_call() -> bool:
        return len(zubble.endpoint.calls) >= 4

    await wait_until(third_call, "the third step is asked for")
    os.kill(first.pid, signal.SIGKILL)
    zubble.start_worker()
    view = await zubble.sealed("long")

    assert view.outcome == "verified"
    assert view.attempt == 2
    assert view.ending is not None
    tree = zubble.artifacts.get(view.ending.artifacts["work_tree"])
    assert tree.count(b"step-1\n") == 2, "once in log.txt and once in its copy"
    events = zubble.artifacts.get(view.ending.artifacts["trajectory"]).decode()
    assert events.count('"type":"restarted"') == 1
    assert (await zubble.store.task(task_id)).abnormal_ends == 1


async def test_no_sandbox_outlives_a_killed_worker(install):
    sleeping = say("run", command="sleep 600", plan_step_id=1)
    zubble = await install({"sleeper": [PLAN, sleeping]})
    await zubble.submit(zubble.task("sleeper"))
    worker = zubble.start_worker()

    async def sleeps() -> bool:
        return bool(_processes(b"sleep\x00600\x00"))

    async def is_gone() -> bool:
        return not _processes(b"sleep\x00600\x00")

    await wait_until(sleeps, "the command runs")
    os.kill(worker.pid, signal.SIGKILL)

    assert await wait_until(is_gone, "the command is gone with its worker")


async def test_a_running_task_is_cancelled_within_a_heartbeat(install):
    zubble = await install({"sleeper": [PLAN, say("run", command="sleep 600")]})
    await zubble.submit(zubble.task("sleeper"))
    zubble.start_worker()
    task_id = zubble.task("sleeper").task_id

    async def runs() -> bool:
        return (await zubble.store.task(task_id)).state == "running"

    await wait_until(runs, "the task runs")
    await zubble.store.cancel_task(task_id)
    view = await zubble.sealed("sleeper", seconds=20)

    assert view.outcome == "cancelled"
    assert view.ending is not None
    assert view.ending.verdict is Verdict.NOT_RUN


async def test_a_worker_that_is_told_to_leave_hands_its_task_over_without_a_charge(install):
    silent = {"text": MAKE, "fault": {"kind": "stall", "after_tokens": 2}}
    again = [PLAN, step(1), MAKE, SUBMIT]
    zubble = await install({"moved": [PLAN, step(1), silent]}, after_restart=again)
    await zubble.submit(zubble.task("moved"))
    first = zubble.start_worker()

    async def third_call() -> bool:
        return len(zubble.endpoint.calls) >= 3

    await wait_until(third_call, "the agent waits for the model")
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=40) == 0
    zubble.start_worker()
    view = await zubble.sealed("moved")

    assert (view.outcome, view.attempt, view.abnormal_ends) == ("verified", 2, 0)


async def test_the_key_is_in_no_record_event_message_or_log(install):
    zubble = await install(
        {"nosy": [PLAN, say("run", command="env; cat /proc/*/environ; echo x > done.txt"), SUBMIT]}
    )
    await zubble.submit(zubble.task("nosy"))
    zubble.start_worker()

    view = await zubble.sealed("nosy")

    assert view.outcome == "verified"
    assert all(call.authorization for call in zubble.endpoint.calls), "the key did reach the endpoint"
    assert SECRET not in zubble.log()
    assert await _keys_with(zubble.store, SECRET.encode()) == []
    assert not [path for path in _files(zubble.folder / "artifacts") if SECRET.encode() in path.read_bytes()]


async def test_the_batch_counts_what_became_of_its_tasks(install):
    zubble = await install({"good": [PLAN, MAKE, SUBMIT], "bad": [PLAN, say("report", report="no")]})
    await zubble.submit(zubble.task("good"), zubble.task("bad"))
    zubble.start_worker()
    await zubble.sealed("good")
    await zubble.sealed("bad")

    batch = await zubble.store.batch(BATCH)

    assert batch.state == "done"
    assert dict(batch.outcomes) == {"verified": 1, "failed": 1}
    assert batch.usage.calls == len(zubble.endpoint.calls)


def _processes(argv: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == argv:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def _keys_with(store, needle: bytes) -> list[bytes]:
    client = store._client
    return [key async for key in client.scan_iter(count=1000) if needle in await client.dump(key)]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_redis_that_pauses_for_longer_than_a_lease_starts_no_agent_over(install):
    """The agent stands still and goes on with its token: no attempt is charged, nothing is done twice."""
    slow = {"text": MAKE, "token_seconds": 0.02}
    zubble = await install({"patient": [PLAN, step(1, "sleep 1"), slow, SUBMIT]})
    await zubble.submit(zubble.task("patient"))
    zubble.start_worker()

    async def second_call() -> bool:
        return len(zubble.endpoint.calls) >= 2

    await wait_until(second_call, "the agent is at work")
    os.kill(zubble.server_pid(), signal.SIGSTOP)
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    os.kill(zubble.server_pid(), signal.SIGCONT)
    view = await zubble.sealed("patient")

    assert (view.outcome, view.attempt, view.abnormal_ends) == ("verified", 1, 0)
    assert view.ending is not None
    assert view.ending.seconds["wallclock"] < 1.5 * LEASE_SECONDS
    tree = zubble.artifacts.get(view.ending.artifacts["work_tree"])
    assert tree.count(b"step-1\n") == 1
