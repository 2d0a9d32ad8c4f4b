"""Exec streams: websockets into a container, and what may happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from dataclasses import dataclass, field

import aiohttp

from tests.integration.pods.containers import kill_child


@dataclass
class Faults:
    """What happens to exec streams, one after the other."""

    cuts: list[tuple[int, int]] = field(default_factory=list)
    """For each stream from now on: how many bytes it lets in and out; then the connection is aborted."""
    status: str = "full"
    """full, empty or none: what the status channel says at the end."""
    protocol: str = "v5.channel.k8s.io"
    piece: int = 32_768
    """Bytes of output in one message."""
    refusals: list[int] = field(default_factory=list)
    """HTTP statuses that the next exec requests get instead of a stream."""


class Stream:
    """One exec stream, and how many more bytes it carries."""

    def __init__(self, socket, faults, bytes_in: int, bytes_out: int) -> None:
        self.socket, self.faults = socket, faults
        self.left = {"in": bytes_in, "out": bytes_out}

    async def serve(self, container, command) -> None:
        self.process = process = await container.exec(command)
        pumps = [
            asyncio.ensure_future(self._in(process)),
            asyncio.ensure_future(self._out(1, process.stdout)),
            asyncio.ensure_future(self._out(2, process.stderr)),
        ]
        try:
            await asyncio.wait(
                [asyncio.ensure_future(process.wait()), pumps[0]], return_when="FIRST_COMPLETED"
            )
            if not pumps[0].done():
                await asyncio.gather(*pumps[1:])
                await self._end(process.returncode)
        finally:
            if process.returncode is None:
                kill_child(process.pid)
            process._transport.close()  # all pipes, and the process where it still runs
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, process.wait(), return_exceptions=True)

    def _let(self, way: str, data: bytes) -> bytes:
        """As much as may still pass; the rest is lost with the connection."""
        passed = data[: self.left[way]]
        self.left[way] -= len(passed)
        return passed

    def stall(self) -> None:
        self.socket._req.transport.pause_reading()
        self.process.send_signal(signal.SIGSTOP)

    def abort(self) -> None:
        transport = self.socket._req.transport
        if transport is not None:
            transport.abort()

    async def _in(self, process) -> None:
        while True:
            message = await self.socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return
            if message.data[:1] != b"\0":
                continue
            passed = self._let("in", message.data[1:])
            with contextlib.suppress(ConnectionError):
                process.stdin.write(passed)
                await process.stdin.drain()
            if len(passed) < len(message.data) - 1:
                self.abort()
                return

    async def _out(self, channel: int, pipe) -> None:
        while data := await pipe.read(self.faults.piece):
            passed = self._let("out", data) if channel == 1 else data
            with contextlib.suppress(ConnectionError):
                await self.socket.send_bytes(bytes((channel,)) + passed)
            if len(passed) < len(data):
                self.abort()
                return

    async def _end(self, code) -> None:
        told = {"status": "Success"} if code == 0 else {"status": "Failure", "message": f"exit code {code}"}
        status = {"empty": b"\3", "full": b"\3" + json.dumps(told).encode()}.get(self.faults.status)
        if status is not None:
            with contextlib.suppress(ConnectionError):
                await self.socket.send_bytes(status)
        await self.socket.close()
