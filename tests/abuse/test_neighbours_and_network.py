"""Attacks 35, 37, 38, 57: the network, sockets of the host, and the sandbox next door."""

# Looking at /proc of the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from pathlib import Path

CONNECT = """
import json
results = []
for family, address in json.loads(sys.argv[1]):
    address = "\\0" + address[1:] if family == socket.AF_UNIX and address[0] == "@" else address
    address = tuple(address) if isinstance(address, list) else address
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(address)
            results.append("ok")
        except OSError as error:
            results.append(errno.errorcode.get(error.errno, type(error).__name__))
print(json.dumps(results))
"""


def listening(family, address):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()
    return listener


def own_address() -> str:
    """An address of this machine other than loopback, where there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


async def test_servers_of_the_host_cannot_be_reached(box, tmp_path):
    name = f"zubble-{secrets.token_hex(8)}"
    servers = [
        listening(socket.AF_INET, ("127.0.0.1", 0)),
        listening(socket.AF_INET, (own_address(), 0)),
        listening(socket.AF_UNIX, "\0" + name),
        listening(socket.AF_UNIX, str(tmp_path / "docker.sock")),
    ]
    if socket.has_dualstack_ipv6():
        servers.append(listening(socket.AF_INET6, ("::1", 0)))
    try:
        targets = []
        for server in servers:
            address = server.getsockname()
            with socket.socket(server.family, socket.SOCK_STREAM) as control:
                control.connect(address)  # control: the host itself gets through
            if server.family == socket.AF_UNIX:
                address = address.decode().replace("\0", "@") if isinstance(address, bytes) else address
            targets.append([server.family, address if isinstance(address, str) else list(address[:2])])
        targets += [
            [socket.AF_INET, ["169.254.169.254", 80]],
            [socket.AF_INET, ["192.0.2.1", 443]],
            [socket.AF_UNIX, "/run/docker.sock"],
            [socket.AF_UNIX, "/run/dbus/system_bus_socket"],
            [socket.AF_UNIX, "/var/run/docker.sock"],
        ]
        found = await box.python("import json\n" + CONNECT, json.dumps(targets))
    finally:
        for server in servers:
            server.close()
    assert set(found) <= {"ECONNREFUSED", "ENETUNREACH", "ENOENT", "EADDRNOTAVAIL"}, list(
        zip(targets, found, strict=True)
    )


async def test_loopback_inside_works_and_is_the_sandboxs_own(open_box):
    serve = """
import json
listener = socket.create_server(("127.0.0.1", 8080))
client = socket.create_connection(("127.0.0.1", 8080))
accepted, _ = listener.accept()
accepted.sendall(b"x")
print(json.dumps(client.recv(1).decode()))
"""
    for box in (await open_box(), await open_box()):
        assert await box.python(serve) == "x"


async def test_names_are_not_resolved(box):
    found = await box.python("""
import json
results = []
for name in ("secret.attacker.test", "localhost"):
    try:
        results.append(socket.getaddrinfo(name, 80)[0][4][0])
    except socket.gaierror:
        results.append("not resolved")
print(json.dumps(results))
""")
    assert found[0] == "not resolved"
    assert found[1] in {"127.0.0.1", "::1"}, "control"
    assert "lo:" in await box.out("cat /proc/net/dev")
    assert (await box.out("tail -n +3 /proc/net/dev | wc -l")).strip() == "1", "no other interface"
    assert await box.out("tail -n +2 /proc/net/route") == "", "no route"


async def test_two_sandboxes_do_not_see_each_other(open_box, provider):
    first, second = await open_box(), await open_box()
    name = secrets.token_hex(8)
    running = asyncio.create_task(
        first.python(
            f"""
import json
server = socket.socket(socket.AF_UNIX); server.bind("\\x00{name}"); server.listen()
open("/tmp/{name}", "w").close(); open("/dev/shm/{name}", "w").close(); open("/work/{name}", "w").close()
while not os.path.exists("/work/stop"):
    time.sleep(0.02)
print(json.dumps("survived"))
""",
            timeout_seconds=60.0,
        )
    )
    for _ in range(200):
        if any(entry.path == name for entry in await first.list()):
            break
        await asyncio.sleep(0.02)
    found = await second.python(f"""
import json
mine = socket.socket(socket.AF_UNIX)
print(json.dumps({{
    "files": [path for top in ("/work", "/tmp", "/dev/shm") for path in os.listdir(top)],
    "processes": len([pid for pid in os.listdir("/proc") if pid.isdigit()]),
    "socket": tried(mine.connect, "\\x00{name}")[0],
    "kill": tried(os.kill, -1, signal.SIGKILL)[0],
    "pid": [tried(os.kill, pid, signal.SIGKILL)[0] for pid in {first.processes!r}],
}}))
""")
    assert found["files"] == []
    relays = provider.name == "docker"
    assert found["processes"] == 2 + relays
    assert found["socket"] == "ECONNREFUSED"
    assert set(found["pid"]) == {"ESRCH"}
    await first.write("stop", b"")
    assert await running == "survived", "control: the first one was there all the time"


async def test_each_sandbox_has_a_user_of_its_own_when_the_worker_is_root(open_box, host):
    boxes = [await open_box() for _ in range(3)]
    uids = [
        Path(f"/proc/{box.supervisor}/status").read_text().split("Uid:\t")[1].split("\t")[0] for box in boxes
    ]
    assert len(set(uids)) == (3 if os.geteuid() == 0 else 1)
    assert "0" not in uids
