"""The step between a worker that is root and a program that must not be."""

from __future__ import annotations

import os
import subprocess

import pytest

UID = 60_998
STATUS = ("/bin/cat", "/proc/self/status")


@pytest.fixture
def enter(program):
    def enter(*arguments):
        env = {"ASAN_OPTIONS": "detect_leaks=0"}
        return subprocess.run(
            (program, "enter", *arguments), capture_output=True, text=True, env=env, check=False
        )

    return enter


def status(text) -> dict[str, list[str]]:
    return {name: values.split() for name, _, values in (line.partition(":") for line in text.splitlines())}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_nothing_of_root_is_left(enter):
    found = status(enter("--uid", str(UID), "--", *STATUS).stdout)
    assert found["Uid"] == found["Gid"] == [str(UID)] * 4
    assert found["Groups"] == []
    assert found["NoNewPrivs"] == ["1"]
    assert all(found[name] == ["0" * 16] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))


def test_without_a_user_it_only_gives_up_new_privileges(enter):
    found = status(enter("--", *STATUS).stdout)
    assert found["Uid"] == [str(os.geteuid())] * 4
    assert found["NoNewPrivs"] == ["1"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may become another user")
def test_who_is_not_root_is_told_so_and_nothing_is_started(enter):
    done = enter("--uid", str(UID), "--", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (70, "")
    assert "cannot become another user" in done.stderr


def test_a_group_that_cannot_be_joined_starts_nothing(enter, tmp_path):
    done = enter("--cgroup", str(tmp_path), "--", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (70, "")
    assert f"cannot join {tmp_path}" in done.stderr


def test_it_joins_the_groups_it_is_told_to(enter, tmp_path):
    (tmp_path / "cgroup.procs").touch()
    assert enter("--cgroup", str(tmp_path), "--", "/bin/echo", "started").stdout == "started\n"
    assert (tmp_path / "cgroup.procs").read_text() == "0"


def test_a_program_that_is_not_there_is_named(enter):
    done = enter("--", "/no/such/program")
    assert done.returncode == 127
    assert "/no/such/program" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--",), ("--uid", "5"), ("--what", "x", "--", "/bin/true")])
def test_what_makes_no_sense_starts_nothing(enter, arguments):
    assert enter(*arguments).returncode == 64


def test_a_mode_that_does_not_exist_is_a_usage_error(program):
    done = subprocess.run((program, "dance"), capture_output=True, env={}, check=False)
    assert done.returncode == 64
    assert b"usage" in done.stderr
