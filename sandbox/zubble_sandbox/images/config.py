"""What an image says of itself, as far as it matters here."""

from __future__ import annotations

import platform
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from zubble_sandbox.images.entries import BadImage

MAX_VARIABLES: Final = 200
MAX_VALUE_BYTES: Final = 32_768
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def machine() -> str:
    """This machine's architecture, as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def check_architecture(what: str, architecture: str | None) -> None:
    """Raises BadImage for an image of other machines."""
    if architecture not in {None, machine()}:
        raise BadImage(f"{what} is for {architecture} machines; this one is {machine()}.")


@dataclass(frozen=True, slots=True)
class Config:
    """The environment and the folder its commands expect."""

    architecture: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    """Absolute; None for the root."""

    @classmethod
    def read(cls, document: Any, what: str) -> tuple[Self, tuple[str, ...]]:
        """The configuration of a Docker or OCI image, and the digests of its layers' content.

        Raises BadImage: it is none, or not for Linux.
        """
        if not isinstance(document, dict):
            raise BadImage(f"{what} has a configuration that is no table.")
        if (system := document.get("os") or "linux") != "linux":
            raise BadImage(f"{what} is for {str(system)[:40]}; only Linux images can be used.")
        layers = _table(document, "rootfs").get("diff_ids")
        if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
            raise BadImage(f"{what} has a configuration without rootfs.diff_ids.")
        inner = _table(document, "config")
        architecture = document.get("architecture")
        config = cls(
            architecture=architecture[:40] if isinstance(architecture, str) and architecture else None,
            env=_env(inner.get("Env")),
            working_dir=_working_dir(inner.get("WorkingDir")),
        )
        return config, tuple(layers)


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _env(listed: Any) -> dict[str, str]:
    """Those that a command can be given; what is odd is left out."""
    pairs = (
        [text.partition("=") for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    )
    sane = {
        name: value
        for name, _, value in pairs[:MAX_VARIABLES]
        if _VARIABLE.fullmatch(name) and "\0" not in value and len(value) <= MAX_VALUE_BYTES
    }
    return sane if sum(map(len, sane.values())) <= MAX_VALUE_BYTES else {}


def _working_dir(path: Any) -> str | None:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        return None
    normal = posixpath.normpath(path)
    return None if normal in {"/", "//"} else normal
