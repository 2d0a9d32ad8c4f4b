"""Folders and variables that a task may have inside its sandbox."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from zubble_queue.contracts.envelope import SandboxRequest, TaskEnvelope

Make = Callable[..., TaskEnvelope]


@pytest.mark.parametrize("path", ["/app", "/work", "/home/me/project", "/usr/src/app", "/opt/é", "/root"])
def test_a_work_tree_may_lie_where_images_have_theirs(path):
    assert SandboxRequest(work_dir=path).work_dir == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "app",
        "./app",
        "/app/",
        "/app//x",
        "/app/../etc",
        "/./app",
        "/a\x00b",
        "/a\nb",
        "/" + "a" * 256,
        "/proc/x",
        "/dev/shm",
        "/etc",
        "/sys",
        "/tmp",
        "/tmp/x",
        "/usr",
        "/home",
        "/run/x",
        "/var/run",
        "/var/run/docker.sock",
        "/bin",
    ],
)
def test_a_folder_of_the_system_or_no_plain_path_is_refused(path):
    for field in ("work_dir", "scratch"):
        with pytest.raises(ValidationError, match=field):
            SandboxRequest.model_validate({field: path if field == "work_dir" else (path,)})


@pytest.mark.parametrize("name", ["linger", "linger_seconds", "snapshot"])
def test_what_does_not_last_is_refused_with_the_reason(name):
    with pytest.raises(
        ValidationError, match=f"{name}: (no sandbox outlives its worker|of a sandbox its work tree)"
    ):
        SandboxRequest.model_validate({name: 60})


@pytest.mark.parametrize(
    "env", [{"": "x"}, {"A=B": "x"}, {"1A": "x"}, {"A B": "x"}, {"A": "\0"}, {"A": "x" * 8_193}], ids=repr
)
def test_a_variable_needs_a_name_and_a_value_that_a_process_can_have(env):
    with pytest.raises(ValidationError, match="env"):
        SandboxRequest(env=env)


@pytest.mark.parametrize("image", ["-rf", "a b", "a\nb", "../x\0", ""])
def test_an_image_is_named_as_registries_do(image):
    with pytest.raises(ValidationError, match="image"):
        SandboxRequest(image=image)


@pytest.mark.parametrize(
    ("sandbox", "folder"),
    [
        ({"scratch": ("/work/logs",)}, "/verify"),
        ({"work_dir": "/logs/app", "scratch": ("/logs",)}, "/verify"),
        ({"scratch": ("/logs", "/logs/more")}, "/verify"),
        ({"work_dir": "/app"}, "/app/tests"),
        ({"scratch": ("/tests",)}, "/tests"),
        ({"work_dir": None}, "/work/tests"),
    ],
    ids=str,
)
def test_folders_that_lie_in_each_other_are_refused(make_envelope: Make, sandbox, folder):
    with pytest.raises(ValidationError, match="must not lie in each other"):
        make_envelope(sandbox=sandbox, verify={"folder": folder})


@pytest.mark.parametrize("file", ["/work/reward.txt", "/reward.txt", "/logs", "/logsx/reward.txt"])
def test_a_reward_is_written_where_nothing_of_the_agents_is_found(make_envelope: Make, file):
    with pytest.raises(ValidationError, match=r"must be below a folder of sandbox\.scratch"):
        make_envelope(sandbox={"scratch": ("/logs",)}, verify={"reward_files": (file,)})


def test_defaults_that_are_said_change_no_hash_and_everything_else_does(make_envelope: Make):
    said = {"image": None, "work_dir": "/work", "scratch": (), "env": {}, "cpus": None, "background": False}
    plain = make_envelope().content_hash()

    same = make_envelope(sandbox=said, verify={"folder": "/verify", "env": {}, "reward_files": ()})

    assert same.content_hash() == plain
    for changes in (
        {"image": "a"},
        {"work_dir": "/app"},
        {"scratch": ("/l",)},
        {"env": {"A": "1"}},
        {"cpus": 1.0},
        {"background": True},
    ):
        assert make_envelope(sandbox=changes).content_hash() != plain
    for changes in ({"folder": "/tests"}, {"env": {"A": "1"}}):
        assert make_envelope(verify=changes).content_hash() != plain
