"""Frames between a worker and a supervisor: length, kind, call id, payload; `box/box.h` explains each kind.

A payload is a list of byte strings, each behind its length. A body follows its request as CHUNK frames of the
same call and one END. Nothing a command prints can reach this line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

HEADER_BYTES: Final = 9
MAX_FRAME_BYTES: Final = 4 * 1_048_576
"""Above ARG_MAX of Linux with an 8 MiB stack (2 MiB), so every command that can start fits one frame."""
CHUNK_BYTES: Final = 262_144

SETUP, EXEC, KILL, FREEZE, THAW, PING, READ, WRITE, LIST, WAIT, SNAPSHOT, RESTORE, AUTH, LEAVE = range(1, 15)
CHUNK, END = 32, 33
OPENED, ROOM, GONE = 34, 35, 36
"""Of connections that are carried; beside them CHUNK and END."""
OK, FAILED = 64, 65
"""An answer is any number of CHUNKs, then OK with fields or FAILED with (kind, errno, sentence)."""

Buffer = bytes | bytearray | memoryview


def pack(*fields: Buffer) -> bytes:
    return b"".join(part for field in fields for part in (len(field).to_bytes(4, "big"), field))


def unpack(payload: Buffer) -> list[bytes]:
    """Raises ValueError when a length points past the end."""
    fields: list[bytes] = []
    position = 0
    while position < len(payload):
        field, position = field_at(payload, position)
        fields.append(bytes(field))
    return fields


def field_at(data: Buffer, position: int) -> tuple[Buffer, int]:
    """The field that begins at a position, and where the next one does. Raises ValueError past the end."""
    start = position + 4
    end = start + int.from_bytes(data[position:start], "big")
    if start > len(data) or end > len(data):
        raise ValueError("a field is longer than its frame")
    return data[start:end], end


def frame(kind: int, call: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(4, "big") + bytes((kind,)) + call.to_bytes(4, "big") + payload


def parse_header(header: bytes) -> tuple[int, int, int]:
    """Length of the payload, kind, call id. Raises ValueError when the frame is too large."""
    length = int.from_bytes(header[:4], "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over {MAX_FRAME_BYTES}")
    return length, header[4], int.from_bytes(header[5:9], "big")


def body_frames(call: int, body: Iterable[Buffer]) -> Iterator[bytes]:
    """CHUNKs as large as they may be, and the END."""
    waiting = bytearray()
    for piece in body:
        for start in range(0, len(piece), CHUNK_BYTES):
            waiting += piece[start : start + CHUNK_BYTES]
            if len(waiting) >= CHUNK_BYTES:
                yield frame(CHUNK, call, bytes(waiting[:CHUNK_BYTES]))
                del waiting[:CHUNK_BYTES]
    if waiting:
        yield frame(CHUNK, call, bytes(waiting))
    yield frame(END, call)
