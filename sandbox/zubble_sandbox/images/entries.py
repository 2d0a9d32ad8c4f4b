"""One thing of a layer, and the rules that every one must keep, wherever it comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from zubble_queue.errors import BadInput

MAX_ENTRIES: Final = 2_000_000
"""Of all layers together; a distribution with a desktop has about 300,000."""
MAX_BYTES: Final = 64 * 2**30
"""Of all files of all layers together."""
MAX_DEPTH: Final = 128
"""Folders above an entry."""
MAX_NAME_BYTES: Final = 255
"""What Linux takes."""
MAX_TARGET_BYTES: Final = 4_095
"""Of a symbolic link; what Linux takes."""

Kind = Literal["file", "folder", "symlink", "hardlink", "other"]
Pieces = Callable[[], Iterator[bytes]]


def nothing() -> Iterator[bytes]:
    """The content of what has none."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing; its content can be read only before the next entry is asked for."""

    parts: tuple[bytes, ...]
    """Names from the top; empty for the top itself."""
    kind: Kind
    """`other`: a device, a FIFO or a socket."""
    mode: int = 0o755
    mtime: int = 0
    """Seconds since 1970."""
    size: int = 0
    target: bytes = b""
    """The text of a symbolic link, or the path of a hard link's other name."""
    pieces: Pieces = nothing

    @property
    def path(self) -> bytes:
        return b"/".join(self.parts)


class BadImage(BadInput):
    """A source that is refused, in one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__([sentence])


def parts_of(path: bytes) -> tuple[bytes, ...]:
    """The names of a relative path. Raises BadImage for one that could lead out."""
    if path.startswith(b"/"):
        raise BadImage(f"The image holds the absolute path {shown(path)}; all must be relative to its root.")
    parts = tuple(part for part in path.split(b"/") if part not in {b"", b"."})
    if b".." in parts or b"\0" in path:
        raise BadImage(f"The image holds the path {shown(path)}, which leads out of its root.")
    if len(parts) > MAX_DEPTH:
        raise BadImage(f"The image holds a path of more than {MAX_DEPTH} folders.")
    if any(len(part) > MAX_NAME_BYTES for part in parts):
        raise BadImage(f"The image holds a name of more than {MAX_NAME_BYTES} bytes.")
    return parts


def shown(path: bytes) -> str:
    """For a sentence; whatever it holds."""
    return repr(os.fsdecode(path[:200]))
