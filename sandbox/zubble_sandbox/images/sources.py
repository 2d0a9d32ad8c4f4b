"""What can be pulled: a tar of `docker save` or `docker export`, an OCI layout, a folder."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

from zubble_sandbox.images import archives, trees
from zubble_sandbox.images.archives import Archive, FolderArchive, OnRead, TarArchive
from zubble_sandbox.images.config import Config, check_architecture
from zubble_sandbox.images.entries import BadImage, Entry
from zubble_sandbox.images.layers import MAX_LAYER_BYTES, Layer, Source, layered, several
from zubble_sandbox.images.oci import oci_source
from zubble_sandbox.images.streams import BROKEN, CHUNK_BYTES, Forward, decompressed, tar_entries

_MANIFEST: Final = "manifest.json"


@contextmanager
def opened(path: Path, scratch: Path, wanted: str | None, on_read: OnRead) -> Iterator[Source]:
    """Look what it is.

    Args:
        path: A file or folder.
        scratch: A folder for a temporary file.
        wanted: The name to choose by, where it holds several images.
        on_read: Told how many bytes of it have been read.

    Raises:
        BadImage: It is none of these, or broken, or for other machines.
        OSError: It cannot be read.
    """
    with ExitStack() as stack:
        if path.is_dir():
            archive: Archive = FolderArchive(path, on_read)
            plain: Layer = partial(trees.walk, path)
        elif path.is_file():
            file = stack.enter_context(_uncompressed(path, scratch))
            archive = TarArchive(file, str(path), on_read)
            plain = partial(_whole, file, str(path), on_read)
        else:
            raise BadImage(f"{path} is not there: name a tar file or a folder.")
        what = str(path)
        source = _docker_source(archive, what, wanted) or oci_source(archive, what, wanted)
        source = source or Source((plain,))
        check_architecture(what, source.config.architecture)
        yield source


@contextmanager
def _uncompressed(path: Path, scratch: Path) -> Iterator[IO[bytes]]:
    """A tar that can be read at any place: its layers may lie in any order."""
    with path.open("rb") as file:
        inner = decompressed(file, str(path))
        if isinstance(inner, io.BufferedReader):
            yield cast("IO[bytes]", inner)
            return
        with tempfile.TemporaryFile(dir=scratch) as whole:
            try:
                shutil.copyfileobj(Forward(inner, limit=MAX_LAYER_BYTES), whole, CHUNK_BYTES)
            except BROKEN as error:
                raise BadImage(f"{path} is not a whole archive: {error}.") from error
            yield whole


def _whole(file: IO[bytes], what: str, on_read: OnRead) -> Iterator[Entry]:
    file.seek(0)
    return tar_entries(Forward(file, limit=MAX_LAYER_BYTES, on_read=on_read), what)


def _docker_source(archive: Archive, what: str, wanted: str | None) -> Source | None:
    """The image that `docker save` wrote; None for something else. Raises BadImage."""
    if not archive.has(_MANIFEST):
        return None
    listed = archives.parsed(archives.contents(archive, _MANIFEST), _MANIFEST)
    if not isinstance(listed, list) or not listed or not all(map(_is_saved, listed)):
        return None
    tagged = {tag: image for image in listed for tag in image.get("RepoTags") or ()}
    name: str | None = wanted if wanted in tagged else next(iter(tagged), None)
    if wanted not in tagged and len(listed) != 1:
        raise several(what, tagged.keys())
    image = listed[0] if name is None else tagged[name]
    data = archives.contents(archive, image["Config"])
    config, digests = Config.read(archives.parsed(data, image["Config"]), what)
    layers = layered(archive, what, image["Layers"], digests)
    return Source(layers, config, name, archives.digest_of(data))


def _is_saved(image: Any) -> bool:
    return (
        isinstance(image, dict)
        and isinstance(image.get("Config"), str)
        and _are_texts(image.get("Layers"))
        and _are_texts(image.get("RepoTags") or [])
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
