"""One repair in a real container, alone and by `zubble run`: attached, report file, verified there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from zubble import make_backend
from zubble_queue.testing import MockEndpoint, Script, structured_reply

pytestmark = pytest.mark.slow

TURNS = [
    structured_reply("plan", steps=["look", "repair", "report"]),
    structured_reply("run", command="cat /etc/app.conf", plan_step_id=1),
    structured_reply("submit", report="too early"),
    structured_reply("run", command="echo port=80 > /etc/app.conf", plan_step_id=2),
    structured_reply(
        "run",
        command="mkdir -p /findings; echo 'The port was wrong.' > /findings/report.md",
        plan_step_id=3,
    ),
    structured_reply("submit", report="repaired"),
]


@pytest.fixture
def broken(docker_engine, monkeypatch):
    """A container whose configuration is wrong."""
    from benchmarks.docker_engine import TOOLS_IMAGE

    monkeypatch.setenv("DOCKER_HOST", docker_engine.host)
    docker = pytest.importorskip("docker")
    client = docker.APIClient(base_url=docker_engine.host)
    client.create_container(
        TOOLS_IMAGE,
        name="broken-1",
        command=[
            "/bin/sh",
            "-c",
            "mkdir -p /tmp /root /work /etc; echo port=0 > /etc/app.conf; while :; do sleep 1000; done",
        ],
        host_config=client.create_host_config(network_mode="none"),
    )
    client.start("broken-1")
    yield "broken-1"
    client.remove_container("broken-1", force=True)
    client.close()


@pytest.fixture
def serve():
    """Serves scripts, each by an endpoint of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    mocks = []

    def start(*rules):
        mock = MockEndpoint(Script.model_validate({"rules": rules}))
        asyncio.run_coroutine_threadsafe(mock.start(), loop).result(10)
        mocks.append(mock)
        return mock.url

    yield start
    for mock in mocks:
        asyncio.run_coroutine_threadsafe(mock.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def url(serve):
    return serve({"turns": TURNS})


def test_a_container_is_repaired_in_place_with_a_report_and_verified_there(broken, url):
    gen = make_backend("zubble", "m", url, broken, verify="grep -qx port=80 /etc/app.conf")

    text, nothing, perf = gen([{"role": "user", "content": "The app does not listen."}], 120, {})

    assert (text, nothing) == ("The port was wrong.", None)
    assert (perf["stop"], perf["verified"], perf["iterations"]) == ("submitted", True, 6)


def test_naming_a_container_on_the_command_line_is_enough_to_work_in_it(broken, url, tmp_path):
    line = [
        *(sys.executable, "-m", "zubble_queue.cli", "--home", str(tmp_path / "home"), "run"),
        *("--endpoint", url, "--model", "m", "--task", "The app does not listen.", "--protocol", "repair"),
        *("--env", "docker", "--env-container", broken, "--level", "xhigh", "--minutes", "2", "--json"),
        *("--verify", "grep -qx port=80 /etc/app.conf", "--report-path", "/findings/report.md"),
    ]

    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100)

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["outcome"], said["ending"]["isolation"]) == ("verified", f"attached {broken}")
    task = said["task_id"]
    shown = json.loads(_zubble(tmp_path, "task", "show", task, "--json"))
    assert shown["envelope"]["verify"]["location"] == "environment"
    assert _zubble(tmp_path, "task", "report", task) == "The port was wrong.\n"


def test_a_loop_repairs_a_container_that_keeps_what_each_iteration_did(broken, serve, tmp_path):
    looked = [
        structured_reply("run", command="cat /etc/app.conf > seen; echo '- [x] look' > PLAN.md"),
        structured_reply("report", report="the port is 0"),
    ]
    repaired = [
        structured_reply("run", command="test -s seen && echo port=80 > /etc/app.conf"),
        structured_reply("submit", report="repaired"),
    ]
    rules = (("iteration 1 of", looked), ("iteration 2 of", repaired))
    url = serve(*({"when": {"contains": words}, "turns": turns} for words, turns in rules))
    line = ("loop", "--endpoint", url, "--model", "m", "--task", "The app does not listen.", "--json")
    place = ("--env", "docker", "--env-container", broken, "--verify", "grep -qx port=80 /etc/app.conf")

    said = json.loads(_zubble(tmp_path, *line, *place))

    assert [each["outcome"] for each in said["iterations"]] == ["failed", "verified"]
    assert said["iterations"][0]["progress"] == ["tree", "plan"]
    assert [path.name for path in (tmp_path / "work").iterdir()] == [".zubble"], "nothing is copied"


def _zubble(folder, *words):
    line = [sys.executable, "-m", "zubble_queue.cli", "--home", str(folder / "home"), *words]
    return subprocess.run(line, capture_output=True, text=True, check=True, cwd=folder, timeout=100).stdout
