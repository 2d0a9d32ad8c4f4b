"""What is written on command lines."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox import commands, roots

SPEC = SandboxSpec(name="secret-name", owner="secret-owner", work_bytes=111, tmp_bytes=22)


ROOT = commands.Root((commands.Top("/usr"),), {"/etc/hosts": b"", "/etc/passwd": b""})


def options(spec=SPEC, **changes):
    arguments = {"root": ROOT, "file_fds": (), "seccomp_fd": 9} | changes
    return commands.bwrap_options(spec, **arguments)


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
    given = options(root=roots.host_root())
    bound = {
        given[at + 1]
        for at, option in enumerate(given)
        if option.startswith(("--bind", "--ro-bind", "--dev-bind"))
    }
    allowed = {"/usr", "/proc/sys", "/etc/alternatives", "/etc/ld.so.cache"}
    assert "/usr" in bound
    assert bound <= allowed | {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
    assert "--bind" not in given
    if Path("/lib").is_symlink():
        at = given.index("/lib")
        assert given[at - 2 : at + 1] == ["--symlink", str(Path("/lib").readlink()), "/lib"]


def test_an_image_is_bound_by_descriptors_and_covered_by_what_is_ours():
    tops = (commands.Top("/etc", fd=11), commands.Top("/lib", link="usr/lib"), commands.Top("/opt", fd=12))
    root = commands.Root(tops, ROOT.etc, covered=frozenset({"/etc/hosts", "/etc/resolv.conf"}))
    spec = replace(SPEC, image="i", work_dir="/app", readonly_files={"/verify/x": b"1"})
    assert commands.placed_files(spec, root) == {"/verify/x": b"1"}
    assert set(commands.covering_files(spec, root)) == {"/etc/hosts"}, (
        "/etc/passwd is not there to be covered"
    )
    assert set(commands.covering_files(replace(spec, network="open"), root)) == {
        "/etc/hosts",
        "/etc/resolv.conf",
    }
    given = options(spec, root=root, cover_fds=[("/etc/hosts", 13)])
    for wanted in (
        ["--ro-bind-fd", "11", "/etc"],
        ["--symlink", "usr/lib", "/lib"],
        ["--ro-bind-fd", "12", "/opt"],
        ["--ro-bind-data", "13", "/etc/hosts"],
        ["--symlink", "/app", "/work"],
    ):
        at = given.index(wanted[2])
        assert given[at - 2 : at + 1] == wanted
    assert ("--dir", "/etc") not in pairs(given)
    assert not {"/usr", "/etc/ssl/certs"} & set(given)


def test_a_check_in_a_folder_of_the_image_has_memory_of_its_own_that_becomes_read_only():
    root = commands.Root((commands.Top("/opt", fd=12),), {}, nested=frozenset({"/opt/check"}))
    spec = replace(SPEC, image="i", verify_dir="/opt/check", readonly_files={"/opt/check/x": b"1" * 100})
    given = options(spec, root=root, file_fds=[("/opt/check/x", 14)])
    size = int(given[given.index("/opt/check") - 2])
    assert size > 100
    assert pairs(given).index(("--remount-ro", "/opt/check")) > given.index("/opt/check/x")


def test_an_image_sets_variables_but_not_ours():
    theirs = {"PATH": "/opt/bin", "HOME": "/root", "TERM": "xterm", "ZUBBLE_WORK": "/x", "MORE": "1"}
    env = commands.environment(replace(SPEC, work_dir="/app"), theirs)
    assert (env["PATH"], env["MORE"], env["ZUBBLE_WORK"]) == ("/opt/bin", "1", "/app")
    assert (env["HOME"], env["TERM"]) == ("/tmp", "dumb")


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
