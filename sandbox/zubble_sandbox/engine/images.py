"""Images of an engine: got from a registry when they are missing; and what lies in their folders."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

from zubble_queue.errors import JobError, SandboxUnavailable
from zubble_sandbox.engine.api import Engine, EngineRefused
from zubble_sandbox.engine.containers import Image

_REFUSED: Final = frozenset({400, 401, 403, 404})
"""What a registry answers where the name is wrong, or not for us."""


class Images:
    """One per engine.

    Args:
        engine: Where they are.
        pull: Whether what is missing is asked of its registry.
    """

    def __init__(self, engine: Engine, pull: Literal["missing", "never"]) -> None:
        self._engine, self._pull = engine, pull
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, name: str) -> Image:
        """An image that is there, pulled first where that is needed and allowed; once for all who wait.

        Raises:
            JobError: nobody has it under this name.
            SandboxUnavailable: it could not be got now.
        """
        found = await self._engine.image(name)
        if found is None and self._pull == "never":
            raise SandboxUnavailable(
                f"The image {name!r} is not on the Docker engine, and sandboxes.docker.pull is 'never': "
                f"docker pull {name}."
            )
        if found is None:
            async with self._turns[name]:
                found = await self._engine.image(name) or await self._pulled(name)
        return Image.of(found)

    async def _pulled(self, name: str) -> Mapping[str, Any]:
        try:
            await self._engine.pull(name)
            found = await self._engine.image(name)
        except EngineRefused as refused:
            sentence = f"The image {name!r} is not on the Docker engine and cannot be pulled: {refused.said}."
            raise (JobError if refused.status in _REFUSED else SandboxUnavailable)(sentence) from refused
        if found is None:
            raise SandboxUnavailable(f"The image {name!r} was pulled and is not there.")
        return found


def tree_of(archive: bytes) -> bytes:
    """The tar of a snapshot from the tar of a folder that an engine copied out: what can be restored of it.

    The first part of every name, which is the folder's own, is left out; so are devices, pipes and sockets.
    """
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as given,
        tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tree,
    ):
        for entry in given:
            name = entry.name.partition("/")[2]
            if name and (entry.isreg() or entry.islnk() or entry.isdir() or entry.issym()):
                content = given.extractfile(entry) if entry.isreg() or entry.islnk() else None
                tree.addfile(_plain(given, entry, name), content)
    return made.getvalue()


def _plain(given: tarfile.TarFile, entry: tarfile.TarInfo, name: str) -> tarfile.TarInfo:
    """Without owner, and a second name of a file as a file of its own."""
    plain = tarfile.TarInfo(name)
    plain.mode, plain.mtime, plain.type = entry.mode, int(entry.mtime), entry.type
    if entry.issym():
        plain.linkname = entry.linkname
    elif entry.islnk():
        plain.type = tarfile.REGTYPE
        plain.size = given.getmember(entry.linkname).size
    elif entry.isreg():
        plain.size = entry.size
    return plain
