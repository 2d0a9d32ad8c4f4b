"""What images are called: one small file for each name, so that none is ever half written."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote


class Names:
    """Names to digests, in a folder that is made with the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Every name with its digest, sorted."""
        for file in sorted(self._folder.glob("[!.]*")):
            yield unquote(file.name), file.read_text("utf-8")

    def digest(self, name: str) -> str | None:
        """What is called so; None also for what could be no name."""
        try:
            return self._file(name).read_text("utf-8")
        except (OSError, ValueError):
            return None

    def of(self, digest: str) -> tuple[str, ...]:
        """All names of one image."""
        return tuple(name for name, other in self if other == digest)

    def give(self, name: str, digest: str) -> None:
        """Take it from whatever was called so before."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        new = self._folder / f".{secrets.token_hex(8)}"
        new.write_text(digest, "utf-8")
        new.rename(self._file(name))

    def remove(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / quote(name, safe="")
