"""Attacks 44 to 59: what a hostile work tree can do to whoever reads it, and to the next sandbox."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import io
import os
import secrets
import tarfile
from pathlib import Path

import pytest

from zubble_queue.contracts.sandbox import MIB, Command

from .sizes import RACE_ROUNDS


@pytest.mark.parametrize(
    "link", ["/etc/passwd", "../etc/passwd", "/proc/self/environ", "/proc/1/environ", "/verify/check", "real"]
)
async def test_a_link_left_for_the_worker_is_not_followed(open_box, link):
    box = await open_box(readonly_files={"/verify/check": b"check"})
    await box.out(f"echo real >real; ln -s '{link}' out.txt; mkdir d; ln -s / d/root")
    for path in ("out.txt", "d/root/etc/passwd", "/work/out.txt", "d/root/work/real"):
        with pytest.raises(OSError, match="link"):
            await box.read(path)
        with pytest.raises(OSError, match="link"):
            await box.write(path, b"x")
    assert await box.read("real") == b"real\n", "control"


@pytest.mark.timeout(600)
async def test_a_folder_swapped_for_a_link_never_shows_what_is_outside(box):
    await box.out("mkdir -p a/inner; echo inside >a/inner/passwd; ln -s / etc-link; ln -s /etc evil")
    swapping = asyncio.create_task(
        box.python(
            """
import json
while not os.path.exists("stop"):
    os.rename("a/inner", "a/kept"); os.symlink("/etc", "a/inner")
    os.unlink("a/inner"); os.rename("a/kept", "a/inner")
print(json.dumps("swapped"))
""",
            timeout_seconds=300.0,
        )
    )
    seen: dict[bytes, int] = {}
    for _ in range(RACE_ROUNDS):
        try:
            content = await box.read("a/inner/passwd")
        except OSError as error:
            content = type(error).__name__.encode()
        seen[content] = seen.get(content, 0) + 1
        for entry in await box.list("a"):
            assert entry.path in {"inner", "inner/passwd", "kept", "kept/passwd"}, entry
    with tarfile.open(fileobj=io.BytesIO(await box.snapshot())) as tar:
        assert b"root:" not in b"".join(tar.extractfile(m).read() for m in tar if m.isreg())
    await box.write("stop", b"")
    assert await swapping == "swapped"
    assert seen.pop(b"inside\n", 0) > 0, "control: the file can be read between two swaps"
    assert all(content.endswith(b"Error") for content in seen), seen


async def test_a_file_of_the_host_cannot_be_linked_or_written(box):
    before = Path("/usr/bin/env").stat()
    for attack in (
        "ln /usr/bin/env hard",
        "mv /usr/bin/env .",
        "echo x >/usr/bin/env",
        "rm /usr/bin/env",
        "touch /usr/bin/env",
        "chmod 777 /usr/bin/env",
        "cp /usr/bin/true /usr/local/bin/ls",
        "echo x >/bin/new",
        "mkdir /usr/new",
    ):
        result = await box.sh(attack)
        assert result.exit_code != 0, attack
    after = Path("/usr/bin/env").stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_mode, before.st_nlink) == (
        after.st_ino,
        after.st_mtime_ns,
        after.st_mode,
        after.st_nlink,
    )
    assert await box.out("echo x >own; ln own hard; cat hard") == "x\n", "control"


async def test_special_files_are_left_out_and_block_nobody(box):
    await box.python("""
import json
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket"); open("file", "w").write("x")
os.mkdir("folder"); os.mkfifo("folder/fifo")
print(json.dumps(None))
""")
    assert {entry.path: entry.kind for entry in await box.list()} == {
        "fifo": "other",
        "socket": "other",
        "file": "file",
        "folder": "directory",
        "folder/fifo": "other",
    }
    with tarfile.open(fileobj=io.BytesIO(await box.snapshot())) as tar:
        assert tar.getnames() == ["file", "folder"]
    for path in ("fifo", "socket", "folder/fifo"):
        with pytest.raises(OSError):
            await box.read(path)
        with pytest.raises(OSError):
            await box.write(path, b"x")


async def test_setuid_bits_do_not_come_out(box):
    await box.out("cp /usr/bin/true a; chmod 6777 a; mkdir d; chmod 3777 d")
    assert {entry.path: entry.mode for entry in await box.list()} == {"a": 0o6777, "d": 0o3777}, (
        "control: they were set"
    )
    with tarfile.open(fileobj=io.BytesIO(await box.snapshot())) as tar:
        assert {member.name: member.mode for member in tar} == {"a": 0o777, "d": 0o777}
        assert {(member.uid, member.gid) for member in tar} == {(0, 0)}


NAMES = (
    "-rf",
    "--help",
    "a\nb",
    "\x1b[31m",
    os.fsdecode(b"\xff\xfe\xfd"),
    "n" * 255,
    "$(touch pwned)",
    "`id`",
    "; ls",
    " ",
    "\t",
    "'",
    '"',
    "\\",
    "*",
    "~",
    "con",
    "a:b",
    "\u202etxt",
)


@pytest.mark.parametrize("name", NAMES)
async def test_a_strange_name_makes_the_round_trip(box, name):
    await box.write(name, b"content")
    assert [entry.path for entry in await box.list()] == [name]
    assert (await box.exec(Command(("cat", "--", name)))).stdout == b"content"
    await box.restore(await box.snapshot())
    assert await box.read(name) == b"content"


@pytest.mark.parametrize(
    "name",
    ["..", "../x", "a/../../x", "/etc/passwd", "/verify/x", "/proc/self/mem", "a\0b", "n" * 256, ".", "/"],
)
async def test_a_name_that_leads_elsewhere_is_refused(box, name):
    with pytest.raises(OSError):
        await box.write(name, b"x")
    await box.write("a", b"x")


async def test_a_tree_of_depth_5000_and_closed_folders_can_be_handled(box, host):
    await box.python("""
import json
for _ in range(5000):
    os.mkdir("d"); os.chdir("d")
os.chdir("/work"); os.mkdir("shut"); os.mkdir("shut/in"); os.chmod("shut", 0)
print(json.dumps(None))
""")
    assert len(await box.list()) > 100
    await box.fingerprint()
    assert len(await box.snapshot()) < MIB * 64
    token = box.token
    await box.destroy()
    assert host.marked(token) == []


async def test_a_target_that_is_a_link_is_refused_and_not_replaced(box):
    await box.out("ln -s /tmp/outside target; ln -s /tmp folder")
    for path in ("target", "folder/outside", "/work/target"):
        with pytest.raises(OSError):
            await box.write(path, b"x")
    assert await box.out("ls /tmp; readlink target folder") == "/tmp/outside\n/tmp\n"


def hostile_tars():
    def tar(*members):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name, kind, target in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
                archive.addfile(info, io.BytesIO(b"evil"))
        return file.getvalue()

    file, link = tarfile.REGTYPE, tarfile.SYMTYPE
    return {
        "absolute": tar(("/tmp/evil", file, "")),
        "dots": tar(("../tmp/evil", file, "")),
        "hidden dots": tar(("a/b/../../../tmp/evil", file, "")),
        "link then write": tar(("l", link, "/tmp"), ("l/evil", file, "")),
        "link over file": tar(("l", link, "/tmp/evil"), ("l", file, "")),
        "link chain": tar(("a", link, "."), ("a/b", link, "/tmp"), ("a/b/evil", file, "")),
        "hard link": tar(("h", tarfile.LNKTYPE, "/etc/passwd")),
        "device": tar(("d", tarfile.BLKTYPE, "")),
        "twice": tar(("f", file, ""), ("f", file, "")),
        "pax": tar(("f", tarfile.XHDTYPE, "")),
        "sparse": tar(("f", tarfile.GNUTYPE_SPARSE, "")),
    }


@pytest.mark.parametrize("what", hostile_tars())
async def test_a_malicious_tar_writes_nothing_outside(box, what):
    with pytest.raises(ValueError):
        await box.restore(hostile_tars()[what])
    assert (await box.sh("ls /tmp")).stdout == b""
    assert await box.list() == []


async def test_a_bomb_of_a_tar_is_stopped_by_the_size_of_the_place(open_box):
    source, target = await open_box(work_bytes=64 * MIB), await open_box(work_bytes=4 * MIB)
    await source.out("head -c 20000000 /dev/zero >big")
    snapshot = await source.snapshot()
    with pytest.raises(OSError):
        await target.restore(snapshot)
    assert await target.list() == []
    await source.restore(snapshot)
    assert (await source.list())[0].size == 20_000_000, "control"


async def test_nothing_planted_in_the_work_tree_runs_on_the_host(box, tmp_path):
    canary = tmp_path / f"canary-{secrets.token_hex(4)}"
    run = f"#!/bin/sh\ntouch {canary}\n".encode()
    python = f"import pathlib; pathlib.Path({str(canary)!r}).touch()".encode()
    planted = {
        ".git/config": f"[core]\nfsmonitor = touch {canary}\nhooksPath = hooks\npager = touch {canary}\n"
        f'[filter "x"]\nclean = touch {canary}\n[diff]\nexternal = touch {canary}\n'
        "[include]\npath = /etc/passwd\n".encode(),
        ".git/hooks/post-checkout": run,
        ".git/HEAD": b"ref: refs/heads/main\n",
        ".gitattributes": b"* filter=x diff=x\n",
        ".envrc": run,
        "conftest.py": python,
        "sitecustomize.py": python,
        "usercustomize.py": python,
        "setup.py": python,
        "json.py": python,
        "os.py": python,
        "tarfile.py": python,
        ".venv/bin/python": run,
        "python3": run,
        "pyproject.toml": b'[build-system]\nbuild-backend = "conftest"\nbackend-path = ["."]\n',
    }
    for path, content in planted.items():
        await box.write(path, content, executable=True)
    await box.list()
    await box.fingerprint()
    await box.restore(await box.snapshot())
    for path, content in planted.items():
        assert await box.read(path) == content
    await box.out("true")
    assert not canary.exists()
    ran = await box.sh("touch ./marker; sh .envrc; ls marker")
    assert b"marker" in ran.stdout, "control: inside they would run"
    assert not canary.exists()


async def test_the_supervisors_own_program_cannot_be_reached_or_changed(box):
    for attack in (
        "echo x >/proc/1/exe",
        "cat /proc/1/fd/0",
        "echo x >$(command -v python3)",
        "mv /usr/bin/python3 /tmp",
    ):
        assert (await box.sh(attack)).exit_code != 0, attack
    assert (await box.python("import json; print(json.dumps('on'))")) == "on"


async def test_the_next_sandbox_sees_nothing_of_the_last(open_box):
    poison = """
import json
for path in ("/tmp/x", "/dev/shm/x", "/work/x", "/tmp/.bashrc", "/tmp/.cache", "/work/.bashrc"):
    open(path, "w").write("poison")
shmget = {"x86_64": 29, "aarch64": 194}[os.uname().machine]
mq_open = {"x86_64": 240, "aarch64": 180}[os.uname().machine]
CREATE = sys.argv[1] == "create"
name = ctypes.create_string_buffer(b"poison")
print(json.dumps([call(shmget, 4242, 4096, 0o1666 if CREATE else 0o666),
                  call(mq_open, ctypes.addressof(name), 0o102 if CREATE else 2, 0o666, 0)]))
"""
    first = await open_box()
    assert await first.python(poison, "create") == ["ok", "ok"]
    assert await first.python(poison, "open") == ["ok", "ok"], (
        "control: the next command of the same sandbox sees them"
    )
    await first.destroy()
    second = await open_box()
    assert await second.out("ls -A /tmp /dev/shm /work | grep -v : | tr -d '\\n'") == ""
    assert await second.python(poison, "open") == ["ENOENT", "ENOENT"]


async def test_a_command_is_data_for_every_launcher(box):
    for argv in (("--bind", "/", "/"), ("--help",), ("-c", "id"), ("--", "id")):
        result = await box.exec(Command(argv))
        assert result.exit_code == 127, argv
    result = await box.exec(Command(("echo", "--bind", "/", "/", "--", "; id", "$(id)")))
    assert result.stdout == b"--bind / / -- ; id $(id)\n", "control"


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A\0B": "x"}, {"A": "x\0y"}])
async def test_a_variable_that_is_none_is_refused(box, env):
    result = await box.exec(Command(("env",), env=env))
    assert result.exit_code == 126
    assert result.stderr
    result = await box.exec(Command(("env",), env={"A\nB": "x\ny"}))
    assert b"A\nB=x\ny" in result.stdout, "control: odd ones are data"


async def test_loader_variables_reach_the_command_only(box):
    await box.write("evil.so", b"not a library")
    env = {
        "LD_PRELOAD": "/work/evil.so",
        "PYTHONSTARTUP": "/work/evil.so",
        "PYTHONPATH": "/work",
        "BASH_ENV": "/work/evil.so",
    }
    result = await box.exec(Command(("sh", "-c", "true"), env=env))
    assert b"evil.so" in result.stderr, "control: the command's loader saw it"
    environ = Path(f"/proc/{box.supervisor}/environ").read_bytes() if os.geteuid() == 0 else b""
    assert b"evil" not in environ
    assert (await box.sh("true")).stderr == b""


@pytest.mark.parametrize(
    "cwd",
    ["/", "/etc", "/usr", "/proc/1/root", "/work/..", "..", "link", "link/etc", "/work/link", "file", "no"],
)
async def test_a_command_does_not_start_outside(box, cwd):
    await box.out("ln -s / link; echo >file")
    result = await box.exec(Command(("pwd",), cwd=cwd))
    assert result.exit_code == 126
    assert result.stdout == b""
    assert (await box.exec(Command(("pwd",), cwd="/tmp"))).stdout == b"/tmp\n", "control"
