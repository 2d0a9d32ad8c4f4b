"""Folders and variables inside a sandbox, as a task names them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from zubble_queue.contracts.frozen import FrozenMap

_PATH_CHARS: Final = 256
_SYSTEM: Final = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp"}
)
"""Nothing below these is a task's, nor below /var/run, which is /run; /tmp is there anyhow."""
_SHARED: Final = frozenset({"usr", "var", "home"})
"""What is below these may be a task's, they themselves may not."""


def folder(path: str) -> str:
    """Raises ValueError with the half sentence that follows the field."""
    parts = path.split("/")
    if not path.startswith("/") or len(path) > _PATH_CHARS or not path.isprintable():
        raise ValueError(
            f"must be an absolute path of at most {_PATH_CHARS} printable characters, got {path[:80]!r}"
        )
    if any(part in {"", ".", ".."} for part in parts[1:]):
        raise ValueError(f"must not hold empty, '.' or '..' parts, got {path!r}")
    below = parts[2:] if parts[1:3] == ["var", "run"] else parts[1:]
    if below[0] in _SYSTEM or (below[0] in _SHARED and len(below) == 1):
        raise ValueError(f"{path!r} belongs to the system; a task may have folders such as /app or /home/me")
    return path


def is_below(path: str, parent: str) -> bool:
    """Whether a path is inside a folder, or the folder itself."""
    return f"{path}/".startswith(f"{parent}/")


Folder = Annotated[str, AfterValidator(folder)]
"""An absolute path inside the sandbox that a task may claim."""

Environment = Annotated[
    FrozenMap[
        Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")],
        Annotated[str, Field(max_length=8_192, pattern=r"^[^\x00]*$")],
    ],
    Field(max_length=100),
]
"""Variables for commands: no endpoint, no key."""
