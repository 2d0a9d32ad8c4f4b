"""Frames over one inherited socket pair: length, kind, call id, payload.

A payload is a list of byte strings, each behind its length. A message longer than a frame is followed by
CHUNK frames of the same call and one END. Nothing a command prints can reach this channel.
"""

from __future__ import annotations

import os
import select
import time

HEADER_BYTES = 9
MAX_FRAME_BYTES = 4 * 1_048_576
"""Above ARG_MAX of Linux with an 8 MiB stack (2 MiB), so every command that can start fits one frame."""
CHUNK_BYTES = 262_144

SETUP, EXEC, KILL, FREEZE, THAW, PING, READ, WRITE, LIST, FINGERPRINT, SNAPSHOT, RESTORE = range(1, 13)
CHUNK, END = 32, 33
OK, FAILED = 64, 65
"""A reply is any number of CHUNKs, then OK with the answer or FAILED with (kind, errno, sentence)."""


def pack(*fields: bytes) -> bytes:
    return b"".join(part for field in fields for part in (len(field).to_bytes(4, "big"), field))


def unpack(payload: bytes) -> list[bytes]:
    """Raises ValueError when a length points past the end."""
    fields: list[bytes] = []
    position = 0
    while position < len(payload):
        start = position + 4
        position = start + int.from_bytes(payload[position:start], "big")
        if position > len(payload) or start > len(payload):
            raise ValueError("a field is longer than its frame")
        fields.append(payload[start:position])
    return fields


def frame(kind: int, call: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(4, "big") + bytes((kind,)) + call.to_bytes(4, "big") + payload


def parse_header(header: bytes) -> tuple[int, int, int]:
    """Length of the payload, kind, call id. Raises ValueError when the frame is too large."""
    length = int.from_bytes(header[:4], "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over {MAX_FRAME_BYTES}")
    return length, header[4], int.from_bytes(header[5:9], "big")


class Closed(Exception):
    """The other end is gone, or this end may live no longer."""


class Line:
    """The supervisor's end: blocking, but never past `end_of_life` (monotonic seconds)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.end_of_life = time.monotonic() + 60.0
        os.set_blocking(fd, False)
        os.set_inheritable(fd, False)

    def receive(self) -> tuple[int, int, bytes]:
        length, kind, call = parse_header(self._read(HEADER_BYTES))
        return kind, call, self._read(length)

    def send(self, kind: int, call: int, payload: bytes = b"") -> None:
        view = memoryview(frame(kind, call, payload))
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)
            except OSError as error:
                raise Closed from error

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = os.read(self.fd, size - len(data))
            except BlockingIOError:
                self._wait(select.POLLIN)
                continue
            except OSError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)

    def _wait(self, event: int) -> None:
        poller = select.poll()
        poller.register(self.fd, event)
        left = self.end_of_life - time.monotonic()
        if left <= 0:
            raise Closed
        poller.poll(min(left, 3_600.0) * 1_000)


class Body:
    """The CHUNKs that follow a request, as a stream."""

    def __init__(self, line: Line, call: int) -> None:
        self._line, self._call = line, call
        self._buffer = bytearray()
        self._ended = False

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        while len(self._buffer) < size and not self._ended:
            self._more()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def drain(self) -> None:
        """Read to the end and forget, so that the next frame is a request again."""
        while not self._ended:
            self._buffer.clear()
            self._more()

    def _more(self) -> None:
        kind, call, payload = self._line.receive()
        if call != self._call or kind not in {CHUNK, END}:
            raise Closed
        self._ended = kind == END
        self._buffer += payload
