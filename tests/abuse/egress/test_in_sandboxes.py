"""Attacks 35 to 38, 42 and 71 from inside: what a sandbox with an allow-list reaches, and what not."""

# Looking at the host blocks nobody here:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import secrets
import socket
from functools import partial
from pathlib import Path

import pytest

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.contracts.identity import task_id
from zubble_queue.contracts.sandbox import Command
from zubble_queue.contracts.task import TaskInput
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox import egress
from zubble_sandbox.bubblewrap import BubblewrapProvider
from zubble_sandbox.egress.proxy import Limits
from zubble_worker.check import SandboxChecker

from .conftest import PUBLIC

GET = """
import json, ssl, urllib.error, urllib.request
def get(url):
    context = ssl.create_default_context(cafile="/work/ca.pem") if url.startswith("https") else None
    try:
        with urllib.request.urlopen(url, timeout=20, context=context) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.read().decode()
    except OSError as failed:
        return f"{type(failed).__name__}: {failed}"
print(json.dumps([get(url) for url in sys.argv[1:]]))
"""


@pytest.fixture
def online(world, provider, monkeypatch):
    """The backend, whose sandboxes find the hosts of these tests behind their allow-lists."""
    limits = Limits(opening_seconds=5.0, new_per_second=10_000.0)
    monkeypatch.setattr("zubble_sandbox.egress.opening.System", lambda: world.outside)
    monkeypatch.setattr("zubble_sandbox.egress.opening.Limits", lambda: limits)
    return provider


@pytest.fixture
async def open_online(online, open_box):
    return partial(open_box, network="allowlist", allowed_hosts=("allowed.example",))


async def test_programs_reach_what_is_allowed_and_nothing_else(open_online, world):
    box = await open_online()
    await box.write("ca.pem", world.trust.encode())
    found = await box.python(
        GET,
        "http://allowed.example/",
        "https://allowed.example/",
        "http://evil.example/",
        "https://evil.example/",
    )
    assert found[:2] == ["hello", "hello"]
    assert found[2] == "zubble: evil.example is not on the allow-list of this task.\n"
    assert "403" in found[3]
    assert world.outside.dialled == [(PUBLIC, 80), (PUBLIC, 443)]
    uses = {use.host: use for use in box.host_uses}
    assert (uses["allowed.example"].allowed, uses["allowed.example"].denied) == (2, 0)
    assert (uses["evil.example"].allowed, uses["evil.example"].denied) == (0, 2)
    assert uses["evil.example"].reasons == ("host",)


async def test_the_proxy_is_the_only_way_out(open_online):
    box = await open_online()
    name = f"zubble-{secrets.token_hex(8)}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        port = tcp.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()  # control
        found = await box.python(f"""
import json
def connect(family, address):
    with socket.socket(family) as out:
        out.settimeout(2)
        return tried(out.connect, address)[0]
def resolve(name):
    try:
        return socket.getaddrinfo(name, 80)[0][4][0]
    except socket.gaierror:
        return "not resolved"
print(json.dumps({{
    "loopback": connect(socket.AF_INET, ("127.0.0.1", {port})),
    "abstract": connect(socket.AF_UNIX, "\\x00{name}"),
    "public": connect(socket.AF_INET, ("{PUBLIC}", 80)),
    "metadata": connect(socket.AF_INET, ("169.254.169.254", 80)),
    "proxy": connect(socket.AF_INET, ("127.0.0.1", {egress.PORT})),
    "name": resolve("allowed.example"), "secret": resolve("secret.attacker.test"),
    "folder": tried(os.listdir, "{egress.INSIDE_FOLDER}")[1] or ["proxy"],
    "remove": tried(os.unlink, "{egress.INSIDE_SOCKET}")[0],
    "add": tried(open, "{egress.INSIDE_FOLDER}/x", "w")[0],
    "up": tried(os.listdir, "{egress.INSIDE_FOLDER}/../..")[0],
}}))
""")
    changed = {found.pop("remove"), found.pop("add")}
    assert changed <= {"EROFS", "EACCES"}
    assert found == {
        "loopback": "ECONNREFUSED",
        "abstract": "ECONNREFUSED",
        "public": "ENETUNREACH",
        "metadata": "ENETUNREACH",
        "proxy": "ok",
        "name": "not resolved",
        "secret": "not resolved",
        "folder": ["proxy"],
        "up": "ok",
    }
    assert (await box.out("tail -n +3 /proc/net/dev | wc -l")).strip() == "1", "no other interface"


async def test_an_empty_list_reaches_nothing(open_online, world):
    box = await open_online(allowed_hosts=())
    assert "not on the allow-list" in (await box.python(GET, "http://allowed.example/"))[0]
    assert world.outside.dialled == []


async def test_a_sandbox_without_a_network_has_no_proxy(box):
    assert await box.out("env") == await box.out("env | grep -vi proxy")
    assert not (await box.sh(f"test -e {egress.INSIDE_FOLDER}")).ok
    assert "URLError" in (await box.python(GET, "http://allowed.example/"))[0]


async def test_commands_cannot_take_the_way_out_away(open_online):
    box = await open_online()
    await box.sh("kill -9 -1")
    await box.python(f"""
import json
held = [socket.create_connection(("127.0.0.1", {egress.PORT})) for _ in range(60)]
for number in range(3, 60):
    os.close(number)
print(json.dumps(tried(socket.create_server, ("127.0.0.1", {egress.PORT}))[0]))
""")
    assert await box.python(GET, "http://allowed.example/") == ["hello"]


async def test_programs_that_only_hold_connections_are_let_go(open_online, monkeypatch):
    limits = Limits(opening_seconds=0.5, new_per_second=10_000.0)
    monkeypatch.setattr("zubble_sandbox.egress.opening.Limits", lambda: limits)
    box = await open_online()
    ended = await box.python(
        f"""
import json
held = [socket.create_connection(("127.0.0.1", {egress.PORT}), timeout=20) for _ in range(60)]
for number, connection in enumerate(held):
    if number % 2:
        connection.sendall(b"GET http://allowed.example/ HTTP/1.1\\r\\nX: ")
def rest(connection):
    data = b""
    try:
        while piece := connection.recv(4096):
            data += piece
    except ConnectionError:
        pass
    return data[:12].decode()
print(json.dumps(sorted({{rest(connection) for connection in held}})))
"""
    )
    assert ended == ["HTTP/1.1 408"]
    assert await box.python(GET, "http://allowed.example/") == ["hello"], "control"


async def test_two_sandboxes_cannot_use_each_others_way(open_online, world):
    world.outside.names["evil.example"] = [[PUBLIC]]
    first, second = await open_online(), await open_online(allowed_hosts=("evil.example",))
    urls = ("http://allowed.example/", "http://evil.example/")
    (ours, _), (_, theirs) = await first.python(GET, *urls), await second.python(GET, *urls)
    assert (ours, theirs) == ("hello", "hello")
    assert [use.host for use in first.host_uses if use.allowed] == ["allowed.example"]
    assert [use.host for use in second.host_uses if use.allowed] == ["evil.example"]


async def test_nothing_of_a_way_out_is_left(open_online):
    box = await open_online()
    folder = box.way_out.folder
    assert folder.name == box.token
    assert folder.exists(), "control"
    await box.destroy()
    assert not folder.exists()


@pytest.mark.bubblewrap
async def test_nothing_of_a_way_out_is_left_by_a_sandbox_that_could_not_be_opened(open_online):
    folder = (await open_online()).way_out.folder.parent
    before = set(folder.iterdir())
    with pytest.raises(SandboxUnavailable, match="could not be opened"):
        await open_online(scratch=("/proc/nowhere",))
    assert set(folder.iterdir()) == before


async def left_behind(host, folder, linger_seconds):
    """The folder of a way out whose worker was killed, and the sandbox's handle."""
    worker = await host.start_worker(
        "leave_a_way_out.py", folder, str(linger_seconds), stdout=asyncio.subprocess.PIPE
    )
    place, handle = (await worker.stdout.readline()).decode().split()
    worker.kill()
    await worker.wait()
    return Path(place), handle


@pytest.mark.bubblewrap
async def test_a_killed_worker_leaves_no_way_out_behind(tmp_path, host, provider):
    folder, _ = await left_behind(host, tmp_path, 0)
    assert (folder / "proxy").exists(), "control"
    await BubblewrapProvider(folder=tmp_path).reap()
    assert not folder.exists()


@pytest.mark.bubblewrap
async def test_a_sandbox_that_is_adopted_has_its_way_out_again(tmp_path, host, online):
    folder, handle = await left_behind(host, tmp_path, 60)
    adopted = await BubblewrapProvider(folder=tmp_path).attach(handle)
    try:
        result = await adopted.exec(
            Command(("python3", "-I", "-c", f"import sys;{GET}", "http://allowed.example/"))
        )
        assert result.stdout == b'["hello"]\n', result
        assert [use.host for use in adopted.host_uses] == ["allowed.example"]
        assert adopted.way_out.folder == folder
    finally:
        await adopted.destroy()
    assert not folder.exists()


@pytest.mark.bubblewrap
async def test_an_open_network_is_the_hosts(open_box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        box = await open_box(network="open")
        connect = f"socket.create_connection(('127.0.0.1', {port}), timeout=5).close()"
        assert await box.python(f"import json\n{connect}\nprint(json.dumps('reached'))") == "reached"
    resolver = Path("/etc/resolv.conf")
    if resolver.exists():
        assert await box.out("cat /etc/resolv.conf") == resolver.read_text()
    assert "dns" in await box.out("grep hosts: /etc/nsswitch.conf")


@pytest.mark.bubblewrap
@pytest.mark.parametrize("network", ["allowlist", "open"])
async def test_programs_can_check_certificates(open_box, network):
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if not bundle.exists():
        pytest.skip("This machine has no certificates in the place of Debian.")
    box = await open_box(network=network)
    assert int(await box.out(f"wc -c < {bundle}")) == bundle.stat().st_size
    assert not (await box.sh("test -e /etc/ssl/private")).ok


async def judged(online, open_box, command, **phases):
    envelope = TaskEnvelope(
        batch="b", source_id="a", model="m", **phases,
        task=TaskInput(
            task_id=task_id("b", "a", 1), description="x", verify_command=command, allowed_tools=("shell",),
            success_criteria="x",
        ),
    )  # fmt: skip
    asked = envelope.sandbox
    box = await open_box(network=asked.network, allowed_hosts=asked.allowed_hosts)
    return await SandboxChecker(online, box.sandbox, envelope, {}).check()


async def test_the_check_has_its_own_network_whatever_the_agent_has(online, open_box):
    lists = {"network": "allowlist", "allowed_hosts": ("allowed.example",)}
    command = "python3 -c \"import urllib.request as u; u.urlopen('http://allowed.example/', timeout=9)\""
    for phases, passed in (({"sandbox": lists}, False), ({"verify": lists}, True)):
        result = await judged(online, open_box, command, **phases)
        assert result.passed == passed, result
        assert [use.host for use in result.host_uses] == (["allowed.example"] if passed else [])
