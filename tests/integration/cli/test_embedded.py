"""The one-machine default: nothing is lost, nothing is left behind, nothing listens."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import pytest
import redis

from zubble_queue.embedded import Crew, Embedded
from zubble_queue.embedded.folder import Folder
from zubble_queue.errors import CannotStart


def sealed(user, batch="b"):
    return user.zubble("batch", "show", batch, "--json").json["sealed"]


@pytest.fixture
def working(ready):
    """A user whose `submit --wait` is in the middle of four slow tasks, and that process."""
    ready.tasks("good-1", "slow-1", "slow-2", "slow-3")
    process = ready.start(*ready.SUBMIT, "--wait", "--slots", "2", "--json")
    ready.wait_until(lambda: ready.embedded.exists() and ready.workers(), "a worker is there")
    ready.wait_until(lambda: sealed(ready) >= 1, "one task is sealed")
    return ready, process


def test_ctrl_c_hands_over_keeps_everything_and_says_how_to_go_on(working):
    user, process = working

    process.send_signal(signal.SIGINT)
    said = user.finish(process)

    assert said.code == 130
    assert (said.json["detached"], said.json["sealed"] < 4) == (True, True)
    assert said.json["resume"].startswith("zubble batch submit tasks.jsonl --batch b")
    assert f"Go on with: {said.json['resume']}" in said.err
    assert user.workers() == []
    assert not Embedded(user.embedded).alive

    again = user.submit("--json")
    assert (again.code, again.json["created"], again.json["outcomes"]) == (0, 0, {"verified": 4})


def test_a_killed_parent_leaves_no_worker_and_its_server_is_adopted(working):
    user, process = working
    server = user.server()

    process.kill()
    process.wait()

    user.wait_until(lambda: not user.workers(), "the workers are gone")
    with Embedded(user.embedded) as adopted:
        assert adopted.alive
        assert user.server() == server != []
        again = user.submit("--json")
        assert user.server() == server
    assert (again.code, again.json["outcomes"]) == (0, {"verified": 4})


def test_a_worker_that_dies_is_replaced_and_every_task_is_sealed_once(working):
    user, process = working
    (worker,) = user.workers()

    os.kill(worker, signal.SIGKILL)
    said = user.finish(process)

    assert (said.code, said.json["outcomes"]) == (0, {"verified": 4})
    assert said.json["requeues"] >= 1


def test_a_server_that_dies_in_the_middle_is_started_again_and_nothing_is_lost(working):
    user, process = working
    (server,) = user.server()

    os.kill(server, signal.SIGKILL)
    said = user.finish(process)

    assert (said.code, said.json["outcomes"]) == (0, {"verified": 4}), user.logs()


def test_a_worker_that_cannot_start_is_said_in_its_own_words(ready):
    ready.tasks("good-1")
    other = ready.write("other.toml", "[worker]\nslots = -1\n")
    crew = Crew(Folder(ready.embedded), {**ready.environment, "ZUBBLE_CONFIG": str(other)}, 1)

    with Embedded(ready.embedded), crew, pytest.raises(CannotStart) as caught:
        ready.wait_until(crew.check, "the crew gives up")

    assert str(caught.value) == (
        f"A local worker cannot start. {other}: worker.slots: input should be greater than or equal to 1."
    )


def test_the_folder_is_private_and_nothing_listens_on_tcp(ready):
    with Embedded(ready.embedded) as embedded:
        assert stat.S_IMODE(ready.embedded.stat().st_mode) == 0o700
        assert stat.S_IMODE(embedded.folder.socket.stat().st_mode) == 0o700
        (pid,) = ready.server()
        inodes = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
        tcp = "".join(Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6"))
        listening = {f"socket:[{line.split()[9]}]" for line in tcp.splitlines() if " 0A " in line}
        assert not inodes & listening
    assert not ready.server()


def test_the_last_one_to_leave_stops_the_server(ready):
    with Embedded(ready.embedded):
        with Embedded(ready.embedded) as other:
            assert other.alive
        assert other.alive
    assert not other.alive


def test_data_survives_a_server_that_was_killed(ready):
    with Embedded(ready.embedded) as embedded:
        with redis.Redis.from_url(embedded.url) as client:
            client.set("kept", "yes")
        (pid,) = ready.server()
        os.kill(pid, signal.SIGKILL)
        ready.wait_until(lambda: not ready.server(), "the server is gone")

    with Embedded(ready.embedded), redis.Redis.from_url(embedded.url) as client:
        assert client.get("kept") == b"yes"


def test_a_stale_socket_is_replaced(ready):
    embedded = Embedded(ready.embedded)
    embedded.folder.prepare()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(embedded.folder.socket))

    with embedded:
        assert embedded.alive


@pytest.mark.parametrize("name", ["x" * 120, "with space", "ünïcode", "per%cent?query#fragment"])
def test_a_home_whose_path_no_socket_or_url_would_take_works(ready, name):
    ready.environment["ZUBBLE_HOME"] = str(ready.folder / name)

    assert ready.zubble("doctor", "--role", "submit").code == 0
    embedded = Embedded(ready.folder / name / "embedded")
    with embedded:
        assert ready.zubble("batch", "ls", "--json").json["batches"] == []
        assert stat.S_IMODE(embedded.folder.socket.parent.stat().st_mode) == 0o700
    assert not embedded.folder.socket.parent.exists()


def test_somebody_elses_socket_folder_is_refused(ready, monkeypatch):
    embedded = Embedded(ready.folder / ("x" * 120))
    place = ready.folder / "elsewhere"
    place.mkdir()
    embedded.folder.socket.parent.symlink_to(place)

    try:
        with pytest.raises(CannotStart, match="cannot be made or used"), embedded:
            pass
    finally:
        embedded.folder.socket.parent.unlink()


def test_a_server_that_cannot_start_says_why(ready, monkeypatch, tmp_path):
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\necho 'Bad directive'\nexit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr("zubble_queue.embedded.server._binary", lambda: str(broken))

        with pytest.raises(CannotStart, match="The embedded server ended at once: Bad directive"):
            Embedded(ready.embedded).__enter__()


def test_up_serves_submissions_of_other_terminals_until_it_is_stopped(ready):
    up = ready.start("up", "--json")
    assert up.stdout is not None
    first = up.stdout.readline()
    assert '"schema": "zubble.up/1"' in first
    ready.tasks("good-1")

    assert ready.submit("--json").json["outcomes"] == {"verified": 1}
    assert len(ready.workers()) == 1

    up.send_signal(signal.SIGTERM)
    said = ready.finish(up)
    assert (said.code, said.out) == (0, "")
    assert not ready.workers()
    assert not ready.server()
