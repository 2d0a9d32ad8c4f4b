"""What is written on command lines."""

from __future__ import annotations

import itertools

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import commands

SPEC = SandboxSpec(name="secret-name", owner="secret-owner", work_bytes=111, tmp_bytes=22)


def options(**changes):
    arguments = {"roots": (), "file_fds": (), "seccomp_fd": 9} | changes
    return commands.bwrap_options(SPEC, **arguments)


def pairs(items):
    return list(itertools.pairwise(items))


def test_every_isolation_is_asked_for():
    wanted = "--unshare-all --unshare-user --disable-userns --die-with-parent --new-session --as-pid-1"
    assert set(wanted.split()) <= set(options())
    assert ("--cap-drop", "ALL") in pairs(options())
    assert ("--seccomp", "9") in pairs(options())


def test_every_memory_file_system_has_its_size_right_before_it():
    given = options()
    sizes = {given[at + 1]: given[at - 1] for at, option in enumerate(given) if option == "--tmpfs"}
    assert sizes == {"/work": "111", "/tmp": "22", "/dev/shm": "22"}
    assert all(given[at - 2] == "--size" for at, option in enumerate(given) if option == "--tmpfs")


def test_the_root_becomes_read_only_after_everything_was_placed():
    given = options(file_fds=[("/verify/a", 7)])
    placing = {"--file", "--tmpfs", "--ro-bind", "--dir", "--dev"}
    last = max(at for at, option in enumerate(given) if option in placing)
    assert pairs(given).index(("--remount-ro", "/")) > last
    assert pairs(given).index(("--remount-ro", "/dev")) > last


def test_only_usr_and_its_links_and_caches_come_from_the_host():
    given = options(roots=[commands.HostRoot("/lib", "usr/lib"), commands.HostRoot("/lib64", None)])
    bound = {
        given[at + 1]
        for at, option in enumerate(given)
        if option.startswith(("--bind", "--ro-bind", "--dev-bind"))
    }
    assert bound == {"/usr", "/lib64", "/proc/sys", "/etc/alternatives", "/etc/ld.so.cache"}
    assert "--bind" not in given
    at = given.index("--symlink")
    assert given[at : at + 3] == ["--symlink", "usr/lib", "/lib"]


def test_no_word_of_a_task_is_an_option():
    assert "secret" not in " ".join(options())


def test_the_program_stands_behind_two_dashes():
    argv = commands.bwrap_argv("/usr/bin/bwrap", 5, ("--bind", "/", "/"))
    assert argv == ["/usr/bin/bwrap", "--args", "5", "--", "--bind", "/", "/"]
    assert commands.entered("zubble-box", argv) == argv
    entered = commands.entered("zubble-box", argv, uid=60_001, groups=("/g/a", "/g/b"))
    joining = ["--cgroup", "/g/a", "--cgroup", "/g/b", "--uid", "60001", "--"]
    assert entered == ["zubble-box", "enter", *joining, *argv]


def test_options_are_separated_by_nul():
    assert commands.nul_separated(["--a", "b\udcff"]) == b"--a\0b\xff\0"


@pytest.mark.parametrize(
    "path",
    [
        "/verify",
        "/verify/",
        "/verify/../etc/x",
        "/verify/./x",
        "/verify//x",
        "/etc/x",
        "verify/x",
        "/verify/a\0",
        "/verifya",
        "",
    ],
)
def test_a_read_only_file_elsewhere_is_the_jobs_fault(path):
    with pytest.raises(JobError, match="/verify"):
        commands.check_readonly_files(SandboxSpec("n", "o", readonly_files={path: b""}))


def test_read_only_files_below_verify_are_fine():
    commands.check_readonly_files(
        SandboxSpec("n", "o", readonly_files={"/verify/a": b"", "/verify/b/..c": b""})
    )
