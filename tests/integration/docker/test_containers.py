"""Sandboxes on a real engine: what they begin with, what they leave, what becomes of a lost line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from dataclasses import replace

import pytest

from benchmarks.docker_engine import SMALL_IMAGE
from zubble_queue.contracts.sandbox import MIB, Command, shell
from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox.engine import trial

pytestmark = pytest.mark.slow

CARRIER = """
import asyncio, socket, sys
async def carry(reader, writer):
    ours, theirs = await asyncio.open_unix_connection(sys.argv[1])
    async def pump(source, sink):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    await asyncio.gather(pump(reader, theirs), pump(ours, writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(carry, sock=socket.socket(fileno=int(sys.argv[2])))
    await server.serve_forever()
asyncio.run(main())
"""
ATTACK_ON_RELAYS = """
import errno, json, os, signal
found = {}
def tried(what, function, *arguments):
    try:
        function(*arguments)
        found[what] = "done"
    except OSError as error:
        found[what] = errno.errorcode[error.errno]
for name in filter(str.isdigit, os.listdir("/proc")):
    folder = f"/proc/{name}"
    if open(f"{folder}/cmdline", "rb").read().split(b"\\0")[1:2] == [b"relay"]:
        tried("kill", os.kill, int(name), signal.SIGKILL)
        tried("stop", os.kill, int(name), signal.SIGSTOP)
        tried("mem", open, f"{folder}/mem", "r+b")
        tried("environ", lambda: open(f"{folder}/environ").read())
        tried("fd", os.listdir, f"{folder}/fd")
print(json.dumps(found))
"""


async def output(sandbox, text):
    result = await sandbox.exec(shell(text))
    assert result.ok, result
    return result.stdout.decode()


async def has_started(sandbox):
    return "started" in [entry.path for entry in await sandbox.list()]


async def test_an_image_that_is_one_static_program_is_enough(new_provider, spec):
    probe = await new_provider(image=SMALL_IMAGE).probe()
    assert (probe.isolated, probe.strength, probe.problems) == (True, "limits", ())


async def test_a_destroyed_sandbox_leaves_nothing_on_the_engine(provider, spec, seen):
    before = seen.volumes()
    sandbox = await provider.open(spec(readonly_files={"/verify/check": b"x"}))
    (token,) = seen.containers()
    assert seen.marked(token), "control: its supervisor runs"
    assert len(seen.volumes() - before) == 2, "control: it has volumes"
    await sandbox.destroy()
    assert (seen.containers(), seen.volumes(), seen.marked(token)) == ({}, before, [])


async def test_an_opening_that_is_cancelled_leaves_nothing(provider, spec, seen):
    before = seen.volumes()
    for pause in (0.0, 0.02, 0.1, 0.3):
        opening = asyncio.create_task(provider.open(spec()))
        await asyncio.sleep(pause)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        if not opening.cancelled():
            await opening.result().destroy()
    assert (seen.containers(), seen.volumes()) == ({}, before)


async def test_many_at_once_are_opened_and_leave_nothing(provider, spec, seen, full_sizes):
    count = 100 if full_sizes else 10
    sandboxes = await asyncio.gather(*(provider.open(spec()) for _ in range(count)))
    said = await asyncio.gather(*(output(each, "echo $((6 * 7))") for each in sandboxes))
    assert said == ["42\n"] * count
    await asyncio.gather(*(each.destroy() for each in sandboxes))
    assert seen.containers() == {}


async def test_the_work_tree_begins_with_what_the_image_holds_there(provider, spec, seen):
    image = seen.make_image(
        "zubble-app:1",
        files=(
            ("app/src/main.py", tarfile.REGTYPE, "", b"print(1)\n"),
            ("app/same.py", tarfile.LNKTYPE, "app/src/main.py", b""),
            ("app/link", tarfile.SYMTYPE, "src/main.py", b""),
            ("app/pipe", tarfile.FIFOTYPE, "", b""),
        ),
        changes=["WORKDIR /app", "ENV GREETING=hello HOME=/root"],
    )
    for _ in range(2):
        sandbox = await provider.open(spec(image=image, work_dir=None))
        try:
            assert [entry.path for entry in await sandbox.list()] == ["link", "same.py", "src", "src/main.py"]
            said = await output(sandbox, "pwd; python3 same.py; echo $GREETING $HOME; echo 2 >src/main.py")
            assert said == "/app\n1\nhello /tmp\n"
        finally:
            await sandbox.destroy()
    with pytest.raises(JobError, match="does not fit"):
        await provider.open(spec(image=image, work_dir=None, work_bytes=4_096))


async def test_volumes_of_an_image_are_memory_and_its_health_check_never_runs(provider, spec, seen):
    image = seen.make_image(
        "zubble-volume:1",
        files=(("data/", tarfile.DIRTYPE, "", b""),),
        changes=["VOLUME /data", "HEALTHCHECK --interval=1s CMD touch /tmp/healthy", "USER 0", "CMD false"],
    )
    sandbox = await provider.open(spec(image=image))
    try:
        said = await output(sandbox, "stat -f -c %T /data; touch /data/x; sleep 2.5; ls /tmp; id -u")
        kind, uid = said.split()
        assert (kind, 20_000 <= int(uid) < 60_000) == ("tmpfs", True)
    finally:
        await sandbox.destroy()


async def test_an_image_that_is_not_there_is_one_sentence(new_provider, spec, seen):
    with pytest.raises(SandboxUnavailable, match=r"docker pull nowhere:1\.$"):
        await new_provider(pull="never").open(spec(image="nowhere:1"))
    with pytest.raises(
        SandboxUnavailable, match="'localhost:1/nowhere:1' is not on the Docker engine and cannot"
    ):
        await new_provider().open(spec(image="localhost:1/nowhere:1"))
    with pytest.raises(JobError, match="names no image"):
        await new_provider(image=None).open(spec())
    assert seen.containers() == {}


async def test_an_image_is_found_by_its_digest(provider, spec, seen):
    digest = seen.client.inspect_image(SMALL_IMAGE)["Id"]
    sandbox = await provider.open(spec(image=digest))
    try:
        assert await output(sandbox, "ls /bin/busybox") == "/bin/busybox\n"
    finally:
        await sandbox.destroy()


async def test_no_sandbox_is_opened_on_a_full_disk(new_provider, spec, seen):
    with pytest.raises(SandboxUnavailable, match=r"MiB free below .* make room"):
        await new_provider(min_free_mb=10**9).open(spec())
    assert seen.containers() == {}


async def test_a_runtime_that_the_engine_does_not_know_is_named(new_provider, spec):
    with pytest.raises(SandboxUnavailable, match=r"no runtime 'kata' \(known: .*runc"):
        await new_provider(runtime="kata").open(spec())


async def test_a_runtime_that_shares_the_kernel_is_found_out(new_provider):
    probe = await new_provider(runtime="runc").probe()
    assert probe.strength == "limits"
    assert probe.problems == ("The runtime 'runc' gives sandboxes no kernel of their own.",)


async def test_gvisor_gives_each_sandbox_a_kernel_of_its_own(new_provider, spec, missing_part):
    if shutil.which("runsc") is None:
        missing_part("runsc is not installed (Debian: apt-get install runsc).")
    provider = new_provider(runtime="runsc", image=SMALL_IMAGE)
    probe = await provider.probe()
    assert (probe.strength, probe.problems) == ("kernel", ()), probe
    sandbox = await provider.open(spec(readonly_files={"/verify/check": b"#!/bin/sh\nexit 3\n"}))
    try:
        await sandbox.write("given", b"1")
        result = await sandbox.exec(shell("cat given; sleep 1000 & /verify/check"))
        assert (result.exit_code, result.stdout) == (3, b"1")
        assert (await sandbox.exec(shell("sleep 1000", timeout_seconds=0.5))).timed_out
    finally:
        await sandbox.destroy()


async def test_an_engine_that_is_not_there_is_one_sentence(new_provider, spec, tmp_path):
    provider = new_provider(host=f"unix://{tmp_path}/sock")
    with pytest.raises(SandboxUnavailable, match=r"does not answer .*start it, or say where"):
        await provider.open(spec())
    assert (await provider.probe()).available is False
    assert await provider.reap() == 0


async def test_using_up_the_memory_is_told_apart_from_being_killed(provider, spec):
    sandbox = await provider.open(spec(memory_bytes=64 * MIB))
    try:
        greedy = await sandbox.exec(Command(("python3", "-c", "bytearray(400 << 20)")))
        assert (greedy.oom, greedy.signal) == (True, signal.SIGKILL)
        killed = await sandbox.exec(shell("kill -9 $$"))
        assert (killed.oom, killed.signal) == (False, signal.SIGKILL)
        assert await output(sandbox, "echo on") == "on\n"
    finally:
        await sandbox.destroy()


async def test_a_command_cannot_touch_the_relay(provider, spec, seen):
    sandbox = await provider.open(spec())
    try:
        assert json.loads(await output(sandbox, f"python3 -c '{ATTACK_ON_RELAYS}'")) == {
            "kill": "EPERM", "stop": "EPERM", "mem": "EACCES", "environ": "EACCES", "fd": "EACCES",
        }  # fmt: skip
        assert len(seen.relays()) == 1, "control: there was one"
    finally:
        await sandbox.destroy()


async def test_a_killed_relay_costs_no_command_and_runs_none_twice(provider, spec, seen, until):
    sandbox = await provider.open(spec())
    try:
        running = asyncio.create_task(
            sandbox.exec(shell("echo >started; echo x >>runs; sleep 3; echo done; exit 7"))
        )
        await until(lambda: has_started(sandbox))
        for _ in range(3):
            (relay,) = seen.relays()
            os.kill(relay, signal.SIGKILL)
            await until(lambda gone=relay: seen.relays() and gone not in seen.relays())
        result = await running
        assert (result.exit_code, result.stdout) == (7, b"done\n")
        assert await sandbox.read("runs") == b"x\n"
    finally:
        await sandbox.destroy()


async def test_what_a_dead_worker_left_is_reaped_by_its_label_and_nothing_else(provider, spec, seen):
    from zubble_sandbox.engine.labels import Worker

    kept = await provider.open(spec())
    orphans = [await provider.open(spec()), await provider.open(replace(spec(), owner="spared"))]
    dead = replace(Worker.this(), started="1")
    for orphan in orphans:
        (token,) = [
            token
            for token, found in seen.containers().items()
            if found["Labels"]["zubble.name"] == orphan.spec.name
        ]
        seen.client.rename(seen.containers()[token]["Id"], dead.name_of(token))
    stranger = seen.client.create_container(SMALL_IMAGE, command=["true"], labels={"zubble.sandbox": "x"})[
        "Id"
    ]
    try:
        assert await provider.reap(keep_owners=frozenset({"spared"})) == 1
        assert await provider.reap() == 1
        assert await provider.reap() == 0
        names = {found["Labels"].get("zubble.name") for found in seen.containers().values()}
        assert names == {kept.spec.name, None}
        assert await output(kept, "echo on") == "on\n"
        for orphan in orphans:
            with pytest.raises(SandboxUnavailable):
                await orphan.exec(shell("true"))
    finally:
        seen.client.remove_container(stranger)
        for each in (kept, *orphans):
            await each.destroy()


@pytest.fixture
def tcp_host(docker_engine):
    """The same engine, by another program that carries TCP to its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        carrier = subprocess.Popen(
            (
                sys.executable,
                "-c",
                CARRIER,
                docker_engine.host.removeprefix("unix://"),
                str(listening.fileno()),
            ),
            pass_fds=(listening.fileno(),),
        )
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        carrier.kill()
        carrier.wait()


async def test_an_engine_is_reached_over_tcp_but_keeps_no_allow_list_there(new_provider, tcp_host, spec):
    provider = new_provider(host=tcp_host)
    sandbox = await provider.open(spec())
    assert await output(sandbox, "echo on") == "on\n"
    await sandbox.destroy()
    assert "allowlist" not in (await provider.probe()).networks
    with pytest.raises(SandboxUnavailable, match="allow-list"):
        await provider.open(spec(network="allowlist", allowed_hosts=("a.example",)))


def test_the_disk_of_an_engine_elsewhere_is_not_looked_at():
    trial.check_room(None, 10**9)
    trial.check_room("/no/such/folder", 10**9)
