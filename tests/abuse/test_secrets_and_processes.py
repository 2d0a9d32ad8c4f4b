"""Attacks 1 to 5, 11, 12, 27: what a command can see of the host, of its supervisor and of the worker."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import json
import os
import secrets
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest


async def test_the_hosts_files_are_not_there(box, tmp_path):
    home = Path.home() / f".zubble-canary-{secrets.token_hex(4)}"
    home.write_text("canary")
    try:
        (tmp_path / "canary").write_text("canary")
        for path in (
            home,
            tmp_path / "canary",
            "/etc/shadow",
            "/root",
            "/home",
            "/var",
            "/run",
            "/opt",
            "/boot",
            "/sys/devices",
            "/sys/class",
        ):
            assert Path(path).exists() or path in {"/opt", "/boot"}, "control: the host has it"
            result = await box.sh(f"cat '{path}' || ls '{path}'")
            assert result.exit_code != 0 or not result.stdout, path
            assert b"canary" not in result.stdout
    finally:
        home.unlink()
    assert await box.out("cat /proc/sys/kernel/hostname") == "box\n", "control: its own files are readable"


@pytest.mark.bubblewrap
async def test_a_key_of_the_worker_is_nowhere_inside(tmp_path, host, provider):
    key = f"sk-planted-{secrets.token_hex(16)}"
    (tmp_path / "zubble.toml").write_text(f'api_key = "{key}"')
    worker = await host.start_worker(
        "search_for_a_key.py",
        key,
        env={"PLANTED_API_KEY": key, "ANTHROPIC_API_KEY": key},
        cwd=tmp_path,
        stdout=PIPE,
    )
    stdout, _ = await worker.communicate()
    found = json.loads(stdout)
    assert found["control"], "control: the search finds a key that was put there"
    assert found["searched"] > 10
    assert found["hits"] == []
    assert found["host_environ"] == ["", ""], (
        "bwrap and the supervisor were started with an empty environment"
    )


async def test_no_process_names_the_task_or_a_path_of_the_host(open_box, host):
    box = await open_box(readonly_files={"/verify/secret-name.py": b"secret content"})
    everything = b"\0".join(
        b"\0".join(host.arguments(pid)) for pid in [*host.marked(box.token), *box.processes]
    )
    for text in (
        b"secret",
        b"/verify",
        b"/run/",
        str(Path.home()).encode(),
        str(Path.cwd()).encode(),
        box.spec.name.encode(),
    ):
        assert text not in everything, text
    assert box.token.encode() in everything, "control: the mark is there"
    inside = await box.out("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "secret" not in inside
    assert "supervise" in inside, "control: pid 1 is among them"


async def test_mounts_name_no_folder_of_the_host(box, provider, request):
    mounts = await box.out("cat /proc/self/mountinfo")
    roots = {line.split()[3] for line in mounts.splitlines()}
    if provider.name == "docker":  # which binds files that it makes for each container
        data = str(request.getfixturevalue("docker_engine").data)
        roots = {root for root in roots if not root.startswith(data)} - {"/fs"}
    assert roots <= {
        "/",
        "/newroot",
        "/usr",
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/sys",
        "/irq",
        "/bus",
        "/sysrq-trigger",
        "/null",
        "/zero",
        "/full",
        "/random",
        "/urandom",
        "/tty",
    }, roots


@pytest.mark.parametrize(
    "what", ["environ", "mem", "maps", "fd", "root", "cwd", "exe", "fdinfo", "map_files", "task/1/fd"]
)
async def test_the_supervisor_cannot_be_looked_into(box, what):
    assert (
        await box.sh(f"cat /proc/1/{what} || ls /proc/1/{what}/ || readlink /proc/1/{what}")
    ).exit_code != 0
    own = {"task/1/fd": "task"}.get(what, what)
    assert (await box.sh(f"test -e /proc/self/{own}")).ok, "control: a process can look into itself"


async def test_only_the_three_standard_descriptors_are_open(open_box, tmp_path):
    leaked = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(leaked, True)
    try:
        box = await open_box()
        found = await box.python(
            "import json; fds = os.listdir('/proc/self/fd'); fds.remove(max(fds, key=int)); "
            "print(json.dumps([[fd, os.readlink(f'/proc/self/fd/{fd}')] for fd in fds]))"
        )
    finally:
        os.close(leaked)
    assert sorted(fd for fd, _ in found) == ["0", "1", "2"]
    assert dict(found)["0"] == "/dev/null"
    assert all(dict(found)[fd].startswith("pipe:") for fd in "12"), found


async def test_the_supervisor_holds_no_folder_of_the_host(box, provider):
    if os.geteuid() != 0:
        pytest.skip("only root may look into the supervisor")
    links = [str(fd.readlink()) for fd in Path(f"/proc/{box.supervisor}/fd").iterdir()]
    lines = [link for link in links if link.startswith("socket:")]
    listens = provider.name == "docker"
    assert len(lines) == 1 + listens, "control: the line to the worker"
    allowed = ("socket:", "pipe:", "/memfd:", "anon_inode:", "/work", "/tmp", "/verify", "/dev/null")
    links = [link for link in links if not link.endswith(("/oom_score_adj", "/memory.oom_control"))]
    assert all(link.startswith(allowed) for link in links), links


async def test_the_control_line_cannot_be_reached(box):
    found = await box.python("""
import json
results = {}
for fd in range(3, 256):
    results[f"write {fd}"] = tried(os.write, fd, b"\\0\\0\\0\\0\\x40\\0\\0\\0\\2")[0]
    results[f"open {fd}"] = tried(os.open, f"/proc/1/fd/{fd}", os.O_RDWR)[0]
print(json.dumps([sorted(set(results.values())), tried(os.write, 1, b"")[0]]))
""")
    assert set(found[0]) <= {"EBADF", "EACCES", "ENOENT"}
    assert found[1] == "ok", "control: its own output can be written"


async def test_the_supervisor_cannot_be_traced(box):
    found = await box.python("""
import json
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
print(json.dumps({
    "attach": call(SYSCALLS["ptrace"], PTRACE_ATTACH, 1, 0, 0),
    "seize": call(SYSCALLS["ptrace"], PTRACE_SEIZE, 1, 0, 0),
    "read": call(SYSCALLS["process_vm_readv"], 1, 0, 0, 0, 0, 0),
    "getfd": call(SYSCALLS["pidfd_getfd"], os.pidfd_open(1), 3, 0),
    "mem": tried(os.open, "/proc/1/mem", os.O_RDWR)[0],
    "control": call(SYSCALLS["getpid"]),
}))
""")
    assert found.pop("control") == "ok"
    assert set(found.values()) <= {"EPERM", "EACCES"}, found
    await box.ping()


@pytest.mark.parametrize(
    "attack",
    [
        "kill -KILL 1",
        "kill -STOP 1",
        "kill -INT 1",
        "kill -TERM 1",
        "kill -SEGV 1",
        "kill -KILL -1",
        "kill -STOP -1",
        "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done",
        "kill -USR1 -1; kill -ALRM 1",
    ],
)
async def test_the_supervisor_survives_every_signal(box, attack):
    before = box.supervisor
    await box.sh(f"{attack}; true", timeout_seconds=2.0)
    await box.ping()
    assert await box.out("echo on") == "on\n"
    assert box.supervisor == before
    victim = await box.sh("sleep 1000 & kill -KILL $!; wait $!; echo $?")
    assert victim.stdout == b"137\n", "control: an own child can be killed"
