"""A host behind allow-lists: it gives everybody the same large page."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib

from tests.abuse.egress.conftest import PUBLIC, Outside
from zubble_queue.contracts.sandbox import MIB

HOST = "allowed.example"
PAGE = b"page" * MIB
GET = f"""python3 -c 'import hashlib, urllib.request as u
print(hashlib.sha256(u.urlopen("http://{HOST}/", timeout=20).read()).hexdigest())'"""
DIGEST = f"{hashlib.sha256(PAGE).hexdigest()}\n".encode()
"""What GET prints."""


@contextlib.asynccontextmanager
async def serving(monkeypatch):
    """The host, found by every proxy that is opened meanwhile."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    world = Outside({80: server.sockets[0].getsockname()[1]}, {HOST: [[PUBLIC]]})
    monkeypatch.setattr("zubble_sandbox.egress.opening.System", lambda: world)
    try:
        yield world
    finally:
        server.close()


async def _answer(reader, writer):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(PAGE)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + PAGE)
        await writer.drain()
    writer.close()
