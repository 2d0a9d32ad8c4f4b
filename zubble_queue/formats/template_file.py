"""A prompt template that a task file names: read where the task file lies, and nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

SUFFIX: Final = ".j2"
"""A task file may be a stranger's; it must not be able to name just any file of its reader."""
TEMPLATE_BYTES: Final = 65_536


def read(folder: Path, name: str) -> bytes:
    """The template's content, checked as far as that is possible without running it.

    Args:
        folder: Of the task file.
        name: Relative to it.

    Raises:
        ValueError: It cannot be used; the message says why.
    """
    parts = PurePosixPath(name).parts
    if not name.endswith(SUFFIX) or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} must be a file *{SUFFIX} below the folder of the task file")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} leads out of the folder of the task file")
    data = _content(path, name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as broken:
        raise ValueError(f"{name!r} is not UTF-8") from broken
    from zubble_queue.templating import checking  # noqa: PLC0415  # Jinja2, only where there is a template

    if wrong := next(checking.problems(text), None):
        raise ValueError(f"{name!r}: {wrong}")
    return data


def _content(path: Path, name: str) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{name!r} is no file")
            data = file.read(TEMPLATE_BYTES + 1)
    except OSError as unreadable:
        raise ValueError(f"{name!r} cannot be read: {unreadable.strerror}") from unreadable
    if len(data) > TEMPLATE_BYTES:
        raise ValueError(f"{name!r} is larger than {TEMPLATE_BYTES} bytes")
    return data
