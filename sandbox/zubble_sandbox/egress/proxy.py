"""The proxy of one sandbox: takes its connections, judges the one request of each, and carries it outside.

A connection is good for one request: a tunnel to a host whose name the TLS hello repeats, or one exchange in
plain HTTP. So nothing can be smuggled behind a request that was allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import structlog

from zubble_queue.contracts.hosts import host_name, matches
from zubble_sandbox.egress import addresses, hello, requests
from zubble_sandbox.egress.flow import Flow, Line
from zubble_sandbox.egress.outside import BUFFER_BYTES, Outside
from zubble_sandbox.egress.refusal import TLS_ALERT, Reason, Refused
from zubble_sandbox.egress.requests import Request, Target
from zubble_sandbox.egress.tally import Tally

_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_END_OF_HEAD: Final = b"\r\n\r\n"
_ADDRESSES_TRIED: Final = 4
_RECORDS: Final = 16
"""A hello in more pieces is refused."""
_TRY_AGAIN_SECONDS: Final = 0.1
"""After accepting failed, as when this process has no descriptor left."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a sandbox may reach."""

    hosts: tuple[str, ...]
    """As `contracts.hosts.AllowedHosts`; none of them: nothing."""
    ports: frozenset[int]

    def check(self, target: Target) -> None:
        """Raises Refused."""
        if not any(matches(pattern, target.host) for pattern in self.hosts):
            raise Refused("host", f"{target.host} is not on the allow-list of this task.", target.host)
        if target.port not in self.ports:
            allowed = ", ".join(map(str, sorted(self.ports)))
            raise Refused("port", f"Port {target.port} is not allowed (allowed: {allowed}).", target.host)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox can take of its worker."""

    head_bytes: int = 16_384
    connections: int = 32
    """At the same time; further ones wait."""
    new_per_second: float = 100.0
    burst: float = 50.0
    """How many of them may come at once after a quiet time."""
    opening_seconds: float = 10.0
    """For the head, for the TLS hello, for the name, for each address."""
    idle_seconds: float = 300.0


class Proxy:
    """Serves one listening socket until it is cancelled."""

    def __init__(self, policy: Policy, outside: Outside, tally: Tally, limits: Limits) -> None:
        self._policy, self._outside, self._tally, self._limits = policy, outside, tally, limits
        self._places = asyncio.Semaphore(limits.connections)
        self._next_at = 0.0

    async def serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as connections:
            while True:
                await self._places.acquire()
                await self._pace()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError:
                    self._places.release()
                    await asyncio.sleep(_TRY_AGAIN_SECONDS)
                    continue
                connections.create_task(self._connection(accepted))

    async def _pace(self) -> None:
        """Keep a sandbox that connects as fast as it can from taking the worker's time."""
        now, limits = asyncio.get_running_loop().time(), self._limits
        self._next_at = max(self._next_at, now - limits.burst / limits.new_per_second)
        self._next_at += 1 / limits.new_per_second
        if self._next_at > now:
            await asyncio.sleep(self._next_at - now)

    async def _connection(self, accepted: socket.socket) -> None:
        try:
            async with _closing(await _line(accepted)) as client:
                await self._answer(client)
        except OSError:
            pass  # the client is gone
        except Exception:  # noqa: BLE001 - one connection's edge: the proxy outlives whatever it met
            _log.exception("a fault of our own", action="egress_failed")
        finally:
            self._places.release()

    async def _answer(self, client: Line) -> None:
        try:
            request = await self._request(client)
            self._policy.check(request.target)
            address, server = await self._dialled(request.target)
        except Refused as refused:
            self._tally.deny(refused)
            await client.say_farewell(refused.answer)
            return
        async with _closing(server):
            if request.tunnel:
                await self._tunnel(client, server, request.target, address)
            else:
                await self._exchange(client, server, request, address)

    async def _tunnel(self, client: Line, server: Line, target: Target, address: str) -> None:
        await client.send(_ESTABLISHED)
        try:
            opening = await self._hello(client, target)
        except Refused as refused:
            self._tally.deny(refused)
            await client.say_farewell(TLS_ALERT)
            return
        count = self._tally.allow(target, address)
        await server.send(opening)
        await Flow(client, server, count, self._limits.idle_seconds).tunnel()

    async def _exchange(self, client: Line, server: Line, request: Request, address: str) -> None:
        count = self._tally.allow(request.target, address)
        await server.send(request.head)
        await Flow(client, server, count, self._limits.idle_seconds).exchange(request.body_bytes)

    async def _request(self, client: Line) -> Request:
        try:
            async with asyncio.timeout(self._limits.opening_seconds):
                head = await client.reader.readuntil(_END_OF_HEAD)
        except TimeoutError as late:
            raise Refused("slow", "The request did not come in time.") from late
        except asyncio.LimitOverrunError as long:
            raise _too_long(self._limits) from long
        except asyncio.IncompleteReadError as cut:
            raise ConnectionError("the client went before it had asked") from cut
        if len(head) > self._limits.head_bytes:
            raise _too_long(self._limits)
        return requests.parse(head)

    async def _hello(self, client: Line, target: Target) -> bytes:
        """The records that open a TLS connection to this very host. Raises Refused."""
        try:
            async with asyncio.timeout(self._limits.opening_seconds):
                records, handshake = await _handshake(client.reader)
            named = host_name(hello.server_name(handshake))
        except TimeoutError as late:
            raise _sni("slow", "the TLS hello did not come in time", target) from late
        except asyncio.IncompleteReadError as cut:
            raise _sni("sni", "the TLS hello is cut short", target) from cut
        except ValueError as wrong:
            raise _sni("sni", str(wrong), target) from wrong
        if named != target.host:
            raise _sni("sni", f"the TLS hello names {named}", target)
        return records

    async def _dialled(self, target: Target) -> tuple[str, Line]:
        """A connection to an address that was looked at: what was checked is what is dialled."""
        public = await self._public_addresses(target)
        for address in public[:_ADDRESSES_TRIED]:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(self._limits.opening_seconds):
                    return address, Line(*await self._outside.dial(address, target.port))
        raise Refused("unreachable", f"{target.host} does not answer on port {target.port}.", target.host)

    async def _public_addresses(self, target: Target) -> list[str]:
        try:
            async with asyncio.timeout(self._limits.opening_seconds):
                found = await self._outside.resolve(target.host, target.port)
        except OSError as unknown:
            raise Refused("unresolved", f"{target.host} cannot be resolved.", target.host) from unknown
        problems = {address: addresses.problem(address) for address in found}
        public = [address for address, problem in problems.items() if problem is None]
        if problems and not public:
            address, problem = next(iter(problems.items()))
            raise Refused("address", f"{target.host} leads to {address}, {problem}.", target.host)
        return public


async def _line(accepted: socket.socket) -> Line:
    reader = asyncio.StreamReader(limit=BUFFER_BYTES)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
    return Line(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


@contextlib.asynccontextmanager
async def _closing(line: Line) -> AsyncIterator[Line]:
    try:
        yield line
    except asyncio.CancelledError:
        line.abort()
        raise
    finally:
        await line.close()


async def _handshake(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The first handshake message, with the records it came in. Raises ValueError or IncompleteReadError."""
    records, handshake, wanted = b"", b"", hello.HANDSHAKE_HEADER_BYTES
    for _ in range(_RECORDS):
        header = await reader.readexactly(hello.RECORD_HEADER_BYTES)
        body = await reader.readexactly(hello.record_bytes(header))
        records, handshake = records + header + body, handshake + body
        if len(handshake) >= hello.HANDSHAKE_HEADER_BYTES:
            wanted = hello.hello_bytes(handshake)
        if len(handshake) == wanted:
            return records, handshake
        if len(handshake) > wanted:
            raise ValueError("more than a hello came before the answer")
    raise ValueError("the TLS hello comes in too many pieces")


def _too_long(limits: Limits) -> Refused:
    return Refused("too_large", f"The head of a request may have at most {limits.head_bytes} bytes.")


def _sni(reason: Reason, cause: str, target: Target) -> Refused:
    return Refused(reason, f"The tunnel to {target.host} was closed: {cause}.", target.host)
