"""Reads an append-only file: every write the server ever made, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def commands(files: Iterable[Path]) -> Iterator[list[bytes]]:
    """The commands of all files; what a kill left half written at an end is passed over."""
    for file in files:
        yield from parsed(file.read_bytes())


def parsed(data: bytes) -> Iterator[list[bytes]]:
    """The commands of one file, as the server replays them."""
    at = 0
    while at < len(data):
        try:
            command, at = _command(data, at)
        except ValueError:  # the end of the data in the middle of a command
            return
        if command:
            yield command


def _command(data: bytes, at: int) -> tuple[list[bytes], int]:
    line, at = _line(data, at)
    if line.startswith(b"#"):  # an annotation
        return [], at
    parts = []
    for _ in range(int(line[1:])):
        size, at = _line(data, at)
        end = at + int(size[1:])
        if end + 2 > len(data):
            raise ValueError("cut short")
        parts.append(data[at:end])
        at = end + 2
    return parts, at


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.index(b"\r\n", at)
    return data[at:end], end + 2
