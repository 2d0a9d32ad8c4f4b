"""Bytes over one exec stream of Kubernetes: the line to a relay in a pod.

The stream is a websocket whose messages begin with the number of a channel (remotecommand protocols
`v4.channel.k8s.io` and `v5.channel.k8s.io`). Nothing is believed about how the relay ended: an exit status
may be missing, empty or wrong when a stream breaks, so an end of any kind is a broken line, and what becomes
of a command is told by the supervisor alone, over the next line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final

import aiohttp

from zubble_sandbox.line import LineLost

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""What we speak, the better one first."""
STDIN, STDOUT, STDERR, STATUS = range(4)
FRAME_BYTES: Final = 262_144
"""The most data in one message of ours; API servers refuse messages of many megabytes."""
MAX_MESSAGE_BYTES: Final = 4 * 1_048_576
"""A larger message breaks the line; kubelets send 32 KiB at a time."""
KEEP_ALIVE_SECONDS: Final = 20.0
"""A ping this often: load balancers cut idle streams, and a peer that is silent half as long is gone."""
CLOSE_SECONDS: Final = 2.0
COMPLAINT_BYTES: Final = 600


class ExecLine:
    """Implements `zubble_sandbox.line.Line`: reads what the relay prints and writes what it reads.

    One reader and one writer at a time. At most one message is held beyond what was asked for: a slow reader
    slows the peer down, and a slow peer the writer, until its silence is longer than the keep-alive allows.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._read = bytearray()
        self._said = bytearray()
        self._status = b""

    async def read_exactly(self, count: int) -> bytes:
        """Raises LineLost when the stream ends before that."""
        while len(self._read) < count:
            self._take(await self._socket.receive())
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    async def read_line(self, *, limit: int = 256) -> bytes:
        """Up to the next line feed, without it; more than `limit` bytes break the line."""
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > limit:
                raise LineLost("the pod sent a line without an end")
            self._take(await self._socket.receive())
        return (await self.read_exactly(end + 1))[:-1]

    async def write(self, data: bytes) -> None:
        """In bounded messages; waits while the peer is slow. Raises LineLost."""
        view = memoryview(data)
        for start in range(0, len(view), FRAME_BYTES):
            try:
                await self._socket.send_bytes(bytes((STDIN,)) + view[start : start + FRAME_BYTES])
            except (aiohttp.ClientError, OSError) as error:
                raise LineLost(self.complaint() or str(error) or "the stream is closed") from error

    async def close(self) -> None:
        """End the stream, and the relay with it; never fails."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._socket.close()

    def complaint(self) -> str:
        """What the relay or the kubelet had to say, for a message; no fact is taken from it."""
        said = self._said.decode(errors="replace").strip()
        return said or _sentence(self._status)

    def _take(self, message: aiohttp.WSMessage) -> None:
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise LineLost(self.complaint() or "the stream ended")
        data: bytes = message.data
        channel = data[0] if data else STDOUT
        if channel == STDOUT:
            self._read += memoryview(data)[1:]
        elif channel == STDERR:
            self._said = (self._said + data[1:])[-COMPLAINT_BYTES:]
        elif channel == STATUS:
            self._status = data[1 : COMPLAINT_BYTES + 1]


def _sentence(status: bytes) -> str:
    """The message in a status, which may be empty, cut or nonsense."""
    try:
        told = json.loads(status)
        return str(told["message"]) if told.get("status") == "Failure" else ""
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""


async def connect(
    session: aiohttp.ClientSession,
    url: str,
    *,
    seconds: float,
    **options: Any,
) -> ExecLine:
    """Open an exec stream.

    Args:
        session: Carries the connection; TLS and credentials come with `options`.
        url: Of the subresource `exec`, with its query.
        seconds: How long the handshake may take.
        options: For aiohttp's `ws_connect`: headers, ssl, proxy, server_hostname.

    Raises:
        aiohttp.WSServerHandshakeError: refused; `status` says by which rule.
        aiohttp.ClientError, OSError, TimeoutError: no connection.
    """
    async with asyncio.timeout(seconds):
        socket = await session.ws_connect(
            url,
            protocols=PROTOCOLS,
            heartbeat=KEEP_ALIVE_SECONDS,
            max_msg_size=MAX_MESSAGE_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            **options,
        )
    return ExecLine(socket)
