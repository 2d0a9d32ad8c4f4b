"""Files that are there whole or as they were before, whenever the writer is killed."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Put the data in place of what is there, folders made. Raises OSError. For one writer at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    new.replace(path)
