"""The layers of an image that was found, each to be read once and checked against its digest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from zubble_sandbox.images.archives import Archive
from zubble_sandbox.images.config import Config
from zubble_sandbox.images.entries import MAX_BYTES, MAX_ENTRIES, BadImage, Entry
from zubble_sandbox.images.streams import Forward, decompressed, tar_entries

MAX_LAYERS: Final = 512
MAX_LAYER_BYTES: Final = MAX_BYTES + MAX_ENTRIES * 1_536
"""With its headers."""
_NAMES_SHOWN: Final = 20

Layer = Callable[[], Iterator[Entry]]


@dataclass(frozen=True, slots=True)
class Source:
    """Something that was opened to be pulled."""

    layers: Sequence[Layer]
    """Lowest first; each must be read to its end."""
    config: Config = field(default_factory=Config)
    name: str | None = None
    """What it calls itself."""
    digest: str | None = None
    """What others know it by: of its manifest in an OCI layout, of its configuration with Docker."""


def layered(archive: Archive, what: str, names: Sequence[str], digests: Sequence[str]) -> tuple[Layer, ...]:
    """Layers by the names of their files and the digests of their content. Raises BadImage."""
    if len(names) != len(digests) or len(names) > MAX_LAYERS:
        raise BadImage(f"{what} has {len(names)} layers, and its configuration {len(digests)}.")
    return tuple(partial(_layer, archive, name, digest) for name, digest in zip(names, digests, strict=True))


def _layer(archive: Archive, name: str, digest: str) -> Iterator[Entry]:
    what = f"The layer {name}"
    with archive.open(name) as file:
        stream = Forward(decompressed(file, what), limit=MAX_LAYER_BYTES)
        yield from tar_entries(stream, what)
    if stream.digest != digest:
        raise BadImage(f"{what} is not what the image's configuration says: {digest}.")


def several(what: str, names: Collection[str]) -> BadImage:
    """For a source of which no single image was meant."""
    if not names:
        return BadImage(f"{what} does not hold exactly one image for this machine.")
    listed = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return BadImage(f"{what} holds several images: choose one with --name ({listed}).")
