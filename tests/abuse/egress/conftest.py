"""A sandbox's way out, and the hosts behind it: real sockets, real TLS, on addresses that only seem public.

What has to be pretended is the name server and the last step of a dial: no address of a test is public. So
names lead where a test says, and a dial to a public address arrives at a server on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field

import pytest
import structlog

from zubble_queue.contracts.hosts import host_pattern
from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox import egress
from zubble_sandbox.egress.proxy import Limits

PUBLIC = "93.184.216.34"
EVIL = "93.184.216.66"
CERTIFIED = "allowed.example,*.below.example,evil.example"


@dataclass
class Outside:
    """Where names lead, and what was asked and dialled."""

    ports: dict[int, int]
    """Port as dialled to port of a server of this test."""
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    """Name to the answers it gets, one after the other, the last one for ever."""
    asked: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def resolve(self, host, port):
        self.asked.append(host)
        answers = self.names.get(host)
        if not answers:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def dial(self, address, port):
        self.dialled.append((address, port))
        if port not in self.ports:
            raise ConnectionRefusedError
        return await asyncio.open_connection("127.0.0.1", self.ports[port])


def length_in(head: bytes) -> int:
    found = re.search(rb"content-length: ([0-9]+)\r\n", head)
    return int(found[1]) if found else 0


class Host:
    """A server that remembers every byte it got on each connection."""

    def __init__(self) -> None:
        self.got: list[bytearray] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
        self.reads = True
        self.hasty = False
        """Answers before it has the body."""

    async def start(self, context=None) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        return self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        self._tasks.append(asyncio.current_task())
        got = bytearray()
        self.got.append(got)
        try:
            await self._answer(reader, writer, got)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader, writer, got):
        got += await reader.readuntil(b"\r\n\r\n")
        if not self.reads:
            await asyncio.Event().wait()
        if not self.hasty:
            got += await reader.readexactly(length_in(got))
        writer.write(self.answer)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            while piece := await reader.read(65_536):
                got += piece

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class World:
    """A way out, its client's end, and all that lies behind it."""

    def __init__(self, outside, web, tls, trust) -> None:
        self.outside, self.web, self.tls, self.trust = outside, web, tls, trust
        self.open: list[egress.Egress] = []

    async def way_out(self, *hosts, ports=(80, 443), **limits):
        """Open another one. Short deadlines, unless a test says otherwise."""
        spec = SandboxSpec(
            name=f"egress-{os.getpid()}",
            owner="egress",
            network="allowlist",
            allowed_hosts=tuple(map(host_pattern, hosts)),
            allowed_ports=ports,
        )
        opened = await egress.open_for(
            spec,
            f"test-{os.getpid()}-{len(self.open)}",
            outside=self.outside,
            limits=Limits(**{"opening_seconds": 5.0, "new_per_second": 10_000.0, **limits}),
        )
        self.open.append(opened)
        return opened

    async def connect(self, way):
        return await asyncio.open_unix_connection(way.folder / "proxy")

    async def ask(self, way, data: bytes) -> bytes:
        """Send bytes and take everything that comes back."""
        reader, writer = await self.connect(way)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    async def get(self, way, url: str, host: str, *fields: str) -> bytes:
        lines = [f"GET {url} HTTP/1.1", f"Host: {host}", *fields, "", ""]
        return await self.ask(way, "\r\n".join(lines).encode("latin-1"))

    async def tunnel(self, way, authority: str, sni: str | None):
        """A TLS connection through the proxy, as (reader, writer); raises what the TLS library raises."""
        reader, writer = await self.connect(way)
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("latin-1"))
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            writer.close()
            raise PermissionError((answer + await reader.read()).decode())
        context = ssl.create_default_context(cadata=self.trust)
        context.check_hostname = False
        try:
            await writer.start_tls(context, server_hostname=sni)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def secure_get(self, way, authority: str, sni: str | None) -> bytes:
        reader, writer = await self.tunnel(way, authority, sni)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: whatever\r\n\r\n")
            return await reader.read()
        finally:
            writer.close()

    def reasons(self, way) -> dict[str, tuple[str, ...]]:
        """Host to why it was denied."""
        return {use.host: use.reasons for use in way.uses() if use.denied}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory, missing_part):
    """A certificate for the hosts of these tests, made now, and its key."""
    if shutil.which("openssl") is None:
        missing_part("openssl is not installed.")
    folder = tmp_path_factory.mktemp("tls")
    names = ",".join(f"DNS:{name}" for name in CERTIFIED.split(","))
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=test"),
            *("-addext", f"subjectAltName={names}"),
        ],
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
async def world(certificate, logged):
    file, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    web, tls = Host(), Host()
    outside = Outside(
        ports={80: await web.start(), 443: await tls.start(context)},
        names={name: [[PUBLIC]] for name in ("allowed.example", "a.below.example", "xn--bcher-kva.example")},
    )
    outside.names["evil.example"] = [[EVIL]]
    world = World(outside, web, tls, file.read_text())
    yield world
    for way in world.open:
        await way.close()
    await web.stop()
    await tls.stop()
    assert [line for line in logged if line.get("action") == "egress_failed"] == [], "faults of our own"


@pytest.fixture
def logged(monkeypatch):
    """What is logged, as dicts, however quiet an earlier test in this process has made the loggers."""
    configured = structlog.get_config()
    structlog.reset_defaults()
    for module in ("proxy", "tally"):
        monkeypatch.setattr(f"zubble_sandbox.egress.{module}._log", structlog.get_logger())
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**configured)
