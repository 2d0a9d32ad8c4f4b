"""What is known of an image, and what it may be called."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_queue.errors import BadInput
from zubble_sandbox.images.config import check_architecture
from zubble_sandbox.images.layers import Source
from zubble_sandbox.images.unpacking import Unpacked

PREFIX: Final = "sha256:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}")
_DIGITS: Final = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class Image:
    """One root file system."""

    digest: str
    """Of its content: what its folder is called by."""
    source: str
    """Where it was pulled from, for people."""
    source_digest: str | None
    """What others know it by, where its source said it."""
    architecture: str | None
    """As in amd64; None where nothing in it says it."""
    env: Mapping[str, str]
    working_dir: str | None
    bytes: int
    entries: int
    skipped: int
    """Devices, FIFOs and sockets, which are left out."""
    pulled_at: float
    names: tuple[str, ...] = ()

    def is_called(self, digits: str) -> bool:
        """Whether one of its digests begins with these hexadecimal digits."""
        digests = (self.digest, self.source_digest or "")
        return any(digest.removeprefix(PREFIX).startswith(digits) for digest in digests)


def described(source: Path, found: Source, unpacked: Unpacked, tree_digest: str) -> Image:
    """What was pulled. Raises BadImage: it is for other machines."""
    config = found.config
    architecture = config.architecture or unpacked.machine
    check_architecture(str(source), architecture)
    identity = [tree_digest, architecture, dict(config.env), config.working_dir]
    return Image(
        digest=PREFIX + hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
        source=str(source),
        source_digest=found.digest,
        architecture=architecture,
        env=dict(config.env),
        working_dir=config.working_dir,
        bytes=unpacked.bytes,
        entries=unpacked.entries,
        skipped=unpacked.skipped,
        pulled_at=time.time(),
    )


def check_name(name: str) -> None:
    """Raises BadInput for what cannot be one."""
    if sane_name(name) is None:
        raise BadInput(
            [f"An image cannot be called {name!r}: at most 200 letters, digits and ._/:@+- are a name."]
        )


def sane_name(name: str | None) -> str | None:
    """None for what is no name, or could be taken for a digest."""
    if name is None or not _NAME.fullmatch(name) or name.startswith(PREFIX) or _DIGITS.fullmatch(name):
        return None
    return name


def digits_of(reference: str) -> str | None:
    """The hexadecimal digits of what could be a digest or its beginning."""
    digits = reference.removeprefix(PREFIX)
    return digits if _DIGITS.fullmatch(digits) else None
