"""What `zubble flower` does: reads who may look, reaches Redis, and serves."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from zubble_queue import registry
from zubble_queue.cli.installation import installation, reached
from zubble_queue.cli.logs import log_to_stderr
from zubble_queue.cli.report import Exit
from zubble_queue.errors import BadInput
from zubble_queue.settings import Settings


def run(
    settings: Settings,
    given: Mapping[str, str | int | None],
    more: Sequence[str],
    users: Path | None,
    *,
    open_door: bool,
    persistent: bool,
) -> NoReturn:
    """Serve until a signal, and leave.

    Args:
        settings: Of the installation.
        given: Flower's options by name; None is not given.
        more: Flower's own options, as they were typed.
        users: A file with a line `name:password` for each who may look.
        open_door: Whether anybody may look.
        persistent: Whether Flower's history is kept.

    Raises:
        BadInput: The options do not go together, or anybody could look and that was not said.
        CannotStart: Redis does not answer, or the address is taken.
        MissingExtra: Flower is not installed.
    """
    log_to_stderr()
    may_look = _users(users) if users is not None else ()
    options: dict[str, str | int | bool] = {name: value for name, value in given.items() if value is not None}
    if persistent:
        options |= {"persistent": True, "db": str(_history(settings.home))}
    server = registry.load("service", "flower")(options, more=more, users=may_look, open_door=open_door)
    with reached(settings) as (found, _):
        asyncio.run(_try(found))
        server.serve(found)
    _leave()


def _leave() -> NoReturn:
    """Threads of Flower's may be waiting for a Redis that is gone; exit never does."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(Exit.DONE)


async def _try(settings: Settings) -> None:
    """Whether the server answers, and is fit for us. Raises CannotStart."""
    async with installation(settings):
        pass


def _users(file: Path) -> tuple[str, ...]:
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as unreadable:
        reason = getattr(unreadable, "strerror", None) or "it is no text"
        raise BadInput([f"{file} cannot be read: {reason}."]) from None
    users = [line for line in lines if line and not line.startswith("#")]
    wrong = [number for number, line in enumerate(lines, 1) if line in users and not all(_parts(line))]
    if wrong:
        raise BadInput(f"{file} line {number}: must be name:password." for number in wrong)
    if not users:
        raise BadInput([f"{file} names nobody: write a line name:password for each who may look."])
    return tuple(users)


def _parts(line: str) -> tuple[str, str]:
    name, _, password = line.partition(":")
    return name, password


def _history(home: Path) -> Path:
    """Flower reads it as pickles, which are programs: nobody else may write there."""
    folder = home / "flower"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "history"
