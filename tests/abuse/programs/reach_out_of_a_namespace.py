"""Let an egress proxy loose on a network of its own, in which addresses may be public: nothing is pretended.

Started by root under `unshare --net --mount`. A second network namespace holds a name server and a web server
at public addresses, joined to this one by a pair of interfaces. Asks through the proxy for every URL on
standard input (a JSON list of [url, answers], the answers being what the name server gives for its host, one
after the other) and says what came back, what the name server was asked for, and whether a server at an
address of this namespace was touched.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from zubble_queue.contracts.sandbox import SandboxSpec
from zubble_sandbox import egress

NAME_SERVER, WEB, OURS = "93.184.216.53", "93.184.216.34", "93.184.216.1"
CLONE_NEWNET = 0x40000000
A, AAAA = 1, 28


def run(*command: str) -> None:
    subprocess.run(command, check=True)


class Names(asyncio.DatagramProtocol):
    """A name server with a queue of answers for each name."""

    def __init__(self, answers: dict[str, list[list[str]]], asked: list[str]) -> None:
        self._answers, self._asked = answers, asked

    def connection_made(self, transport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address) -> None:
        labels, at = [], 12
        while size := data[at]:
            labels.append(data[at + 1 : at + 1 + size].decode())
            at += 1 + size
        name, kind = ".".join(labels).lower(), struct.unpack_from("!H", data, at + 1)[0]
        self._asked.append(name)
        records = b"".join(self._records(name, kind))
        count = len(records) // (12 + (4 if kind == A else 16))
        code = 0x8180 if name in self._answers else 0x8183
        head = data[:2] + struct.pack("!HHHHH", code, 1, count, 0, 0)
        self._transport.sendto(head + data[12 : at + 5] + records, address)

    def _records(self, name: str, kind: int):
        queue = self._answers.get(name, [[]])
        answer = queue.pop(0) if kind == A and len(queue) > 1 else queue[0]
        family, size = (socket.AF_INET, 4) if kind == A else (socket.AF_INET6, 16)
        for text in answer:
            if kind in {A, AAAA} and (":" in text) == (kind == AAAA):
                yield struct.pack("!HHHIH", 0xC00C, kind, 1, 0, size) + socket.inet_pton(family, text)


async def answer(_, writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()


async def serve(answers, asked_fd: int) -> None:
    """The other side, until it is killed."""
    asked: list[str] = []
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Names(answers, asked), local_addr=(NAME_SERVER, 53))
    server = await asyncio.start_server(answer, WEB, 80)
    os.write(asked_fd, b"\n")
    while True:
        await asyncio.sleep(0.02)
        while asked:
            os.write(asked_fd, (asked.pop(0) + "\n").encode())
        assert server.is_serving()


def other_side(answers) -> tuple[int, int]:
    """Start it in a network of its own; its process, and where the names it was asked for can be read."""
    reading, writing = os.pipe()
    joined, join = os.pipe()
    apart, come_apart = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).unshare(CLONE_NEWNET)
        os.write(come_apart, b".")
        os.read(joined, 1)
        for address in (NAME_SERVER, WEB):
            run("ip", "address", "add", f"{address}/24", "dev", "there")
        run("ip", "link", "set", "there", "up")
        asyncio.run(serve(answers, writing))
    os.read(apart, 1)
    run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(child))
    run("ip", "address", "add", f"{OURS}/24", "dev", "here")
    run("ip", "link", "set", "here", "up")
    os.write(join, b".")
    os.read(reading, 1)
    return child, reading


async def ask(way: egress.Egress, url: str) -> str:
    host = urlsplit(url).netloc
    reader, writer = await asyncio.open_unix_connection(way.folder / "proxy")
    writer.write(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    said = (await reader.read()).decode()
    writer.close()
    return said.splitlines()[0] + " | " + said.splitlines()[-1]


async def main(urls) -> None:
    touched = []

    async def trap(_, writer) -> None:
        touched.append(1)
        await answer(_, writer)

    traps = [await asyncio.start_server(trap, address, 80) for address in ("127.0.0.1", OURS)]
    hosts = tuple(sorted({urlsplit(url).hostname for url in urls} - {"secret.attacker.test"}))
    spec = SandboxSpec("outside", "outside", network="allowlist", allowed_hosts=hosts)
    way = await egress.open_for(spec, f"outside-{os.getpid()}")
    try:
        said = [await ask(way, url) for url in urls]
    finally:
        await way.close()
    assert all(server.is_serving() for server in traps)
    await asyncio.sleep(0.1)
    asked = os.read(reading, 1_000_000).decode().split()
    json.dump({"said": said, "asked": asked, "touched": len(touched)}, sys.stdout)


wanted = json.load(sys.stdin)
queues: dict[str, list[list[str]]] = {}
for url, answers in wanted:
    queues.setdefault(urlsplit(url).hostname, answers)
run("ip", "link", "set", "lo", "up")
with tempfile.NamedTemporaryFile("w") as resolver:
    resolver.write(f"nameserver {NAME_SERVER}\nsearch attacker.test\noptions ndots:5\n")
    resolver.flush()
    run("mount", "--bind", resolver.name, str(Path("/etc/resolv.conf").resolve()))
    child, reading = other_side(queues)
    try:
        asyncio.run(main([url for url, _ in wanted]))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
