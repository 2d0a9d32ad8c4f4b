"""What `zubble sandbox pull|ls|rm` do."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zubble_queue import registry
from zubble_queue.cli.report import Exit, Report, duration, plain
from zubble_queue.cli.waiting import progress_bar
from zubble_queue.errors import BadInput

if TYPE_CHECKING:
    from zubble_queue.settings import Settings

_MIB: Final = 2**20
_SHORT_DIGEST: Final = 19


def pull(settings: Settings, source: Path, name: str | None, report: Report) -> Exit:
    """Raises BadInput when the source is refused; nothing of it is kept then."""
    images, read = _images(settings), 0
    total = source.stat().st_size if source.is_file() else 0
    with progress_bar(f"Pulling {plain(source.name)}") as progress:

        def on_read(size: int) -> None:
            nonlocal read
            read += size
            progress.update(read // _MIB, max(total, read) // _MIB, "MiB")

        image = images.pull(source, name=name, on_read=on_read)
    skipped = f", {image.skipped} devices and the like left out" if image.skipped else ""
    report.say(f"{', '.join(image.names)}: {image.digest}, {_size(image.bytes)}{skipped}.")
    if os.geteuid() == 0 and (closed := images.closed_to_others()) is not None:
        report.note(
            f"Workers that are root cannot use it there, as {closed} is closed to other users: set "
            "images_folder to a folder that every user may pass."
        )
    report.result(_shown(image))
    return Exit.DONE


def ls(settings: Settings, report: Report) -> Exit:
    images = list(_images(settings))
    if images:
        report.table(
            ("NAME", "DIGEST", "MACHINE", "SIZE", "PULLED"),
            (
                (
                    ", ".join(image.names) or "-",
                    image.digest[:_SHORT_DIGEST],
                    image.architecture or "any",
                    _size(image.bytes),
                    f"{duration(max(0.0, time.time() - image.pulled_at))} ago",
                )
                for image in images
            ),
        )
    else:
        report.say(f"None are in {settings.images_folder}.")
    report.result({"folder": str(settings.images_folder), "images": [_shown(image) for image in images]})
    return Exit.DONE


def rm(settings: Settings, references: Sequence[str], report: Report) -> Exit:
    """Raises BadInput: for what is not there before anything is removed, for what is in use when met."""
    images = _images(settings)
    unknown = [reference for reference in dict.fromkeys(references) if images.find(reference) is None]
    if unknown:
        raise BadInput(f"There is no image {name!r}; `zubble sandbox ls` lists them." for name in unknown)
    removed: list[dict[str, Any]] = []
    for reference in references:
        image = images.remove(reference)
        removed.append({"names": list(image.names), "digest": image.digest})
        report.say(f"Removed {plain(reference)}.")
    report.result({"removed": removed})
    return Exit.DONE


def _images(settings: Settings) -> Any:
    return registry.load("service", "images")(settings.images_folder)


def _shown(image: Any) -> dict[str, Any]:
    return asdict(image)


def _size(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
