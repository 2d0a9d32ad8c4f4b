"""The image in an OCI layout, which may hold several, each for several kinds of machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zubble_sandbox.images import archives
from zubble_sandbox.images.archives import Archive
from zubble_sandbox.images.config import Config, check_architecture, machine
from zubble_sandbox.images.entries import BadImage
from zubble_sandbox.images.layers import Source, layered, several

MAX_MANIFESTS: Final = 512
_INDEX: Final = "index.json"
_MARK: Final = "oci-layout"
_NAMES: Final = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_DEPTH: Final = 3
"""Of indexes in indexes."""


@dataclass(frozen=True, slots=True)
class _Manifest:
    content: Mapping[str, Any]
    digest: str
    name: str | None
    architecture: str | None


def oci_source(archive: Archive, what: str, wanted: str | None) -> Source | None:
    """The one image that fits this machine, or the one that is wanted; None for something else.

    Raises BadImage.
    """
    if not archive.has(_MARK) or not archive.has(_INDEX):
        return None
    index = archives.parsed(archives.contents(archive, _INDEX), _INDEX)
    chosen = _chosen(list(_manifests(archive, index, _DEPTH)), what, wanted)
    config, digests = Config.read(_blob(archive, chosen.content.get("config"))[0], what)
    layers = chosen.content.get("layers")
    names = [archives.blob_name(_digest(layer)) for layer in (layers if isinstance(layers, list) else ())]
    return Source(layered(archive, what, names, digests), config, chosen.name, chosen.digest)


def _chosen(found: list[_Manifest], what: str, wanted: str | None) -> _Manifest:
    fitting = [each for each in found if each.architecture in {None, machine()}]
    if found and not fitting:
        check_architecture(what, found[0].architecture)
    named = {each.name: each for each in fitting if each.name is not None}
    if wanted is not None and wanted in named:
        return named[wanted]
    if len(fitting) != 1:
        raise several(what, named.keys())
    return fitting[0]


def _manifests(archive: Archive, index: Any, depth: int, name: str | None = None) -> Iterator[_Manifest]:
    listed = _table(index).get("manifests")
    if not isinstance(listed, list) or len(listed) > MAX_MANIFESTS or depth == 0:
        raise BadImage(f"The image's {_INDEX} is not one of an OCI layout.")
    for each in map(_table, listed):
        architecture = _text(_table(each.get("platform")).get("architecture"))
        if architecture == "unknown":  # an attestation
            continue
        content, digest = _blob(archive, each)
        own_name = _name(_table(each.get("annotations"))) or name
        if "manifests" in content:
            yield from _manifests(archive, content, depth - 1, own_name)
        else:
            yield _Manifest(content, digest, own_name, architecture)


def _name(annotations: Mapping[str, Any]) -> str | None:
    return next((name for key in _NAMES if (name := _text(annotations.get(key)))), None)


def _blob(archive: Archive, descriptor: Any) -> tuple[Mapping[str, Any], str]:
    digest = _digest(descriptor)
    return _table(archives.blob(archive, digest)), digest


def _digest(descriptor: Any) -> str:
    digest = _text(_table(descriptor).get("digest"))
    if digest is None or not archives.is_digest(digest):
        raise BadImage(f"The image names the blob {str(digest)[:100]!r}; only sha256 digests are known.")
    return digest


def _table(value: Any) -> Mapping[str, Any]:
    """JSON of somebody else: a table, or an empty one in place of something else."""
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
