"""Names to parts, through entry points; a part is imported only when it is asked for."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from zubble_queue.errors import MissingExtra, UnknownName

GROUPS: Final = {
    "model": "zubble.models",
    "sandbox": "zubble.sandboxes",
    "format": "zubble.formats",
    "service": "zubble.services",
}
_EXTRA: Final = "worker"
_EXTRAS: Final = {
    "aiohttp": "kubernetes",
    "docker": "docker",
    "flower": "flower",
    "kubernetes": "kubernetes",
    "opentelemetry": "otel",
}
"""Package to the extra that brings it; all others are part of the extra `worker`."""


def names(kind: str) -> tuple[str, ...]:
    """The installed names of a kind (`model`, `sandbox`, `format`, `service`), sorted."""
    return tuple(sorted({point.name for point in _points(kind)}))


def load(kind: str, name: str) -> Any:
    """The part behind a name.

    Raises:
        UnknownName: No such name is installed; the message lists those that are.
        MissingExtra: It is known, but what it imports is not installed.
    """
    for point in _points(kind):
        if point.name == name:
            return _import(kind, point)
    raise UnknownName(kind, name, names(kind))


def _points(kind: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUPS[kind]))


def _import(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package.startswith("zubble"):
            raise
        what = f"The {kind} {point.name!r} (it needs {missing.name})"
        raise MissingExtra(what, _EXTRAS.get(package, _EXTRA)) from missing
