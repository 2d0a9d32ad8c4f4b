"""The Lua scripts, one file each, with the shared parts put behind their first line."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Final

_FOLDER: Final = files("zubble_queue.stores") / "lua"
_SHARED: Final = ("common", "questions", "rounds", "eligible")


def names() -> tuple[str, ...]:
    """All scripts that can be run."""
    stems = (entry.name.removesuffix(".lua") for entry in _FOLDER.iterdir() if entry.name.endswith(".lua"))
    return tuple(sorted(stem for stem in stems if stem not in _SHARED))


def sources() -> Iterator[tuple[str, str]]:
    """Name and complete text of every script."""
    shared = "".join(map(_read, _SHARED))
    for name in names():
        first, rest = _read(name).split("\n", 1)
        yield name, f"{first}\n{shared}\n{rest}"


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
