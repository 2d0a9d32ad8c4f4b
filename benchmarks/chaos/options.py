"""What one campaign is asked to do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.chaos.plan import MATRIX

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVERS: Final = ("valkey", "redis")
FSYNCS: Final = ("always", "everysec")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, read."""

    tasks: int
    faults: int
    seed: int
    lease: float
    workers: int
    slots: int
    server: str
    fsync: str
    only: tuple[str, ...]
    keep: str | None
    json: bool

    @classmethod
    def read(cls, arguments: Sequence[str] | None, *, program: str, description: str) -> Options:
        parser = argparse.ArgumentParser(prog=program, description=description)
        parser.add_argument("--tasks", type=_positive, default=200, help="tasks of the batch (default 200)")
        parser.add_argument("--faults", type=_natural, default=20, help="faults to inject (default 20)")
        parser.add_argument("--seed", type=int, default=1, help="which faults, in which order (default 1)")
        parser.add_argument("--lease", type=float, default=6.0, metavar="SECONDS", help="default 6")
        parser.add_argument("--workers", type=_positive, default=3, help="worker processes (default 3)")
        parser.add_argument(
            "--slots", type=_positive, default=4, help="attempts at a time in each (default 4)"
        )
        parser.add_argument("--server", choices=SERVERS, default="valkey", help="default valkey")
        parser.add_argument(
            "--fsync", choices=FSYNCS, default="always", help="the server's appendfsync (default always)"
        )
        parser.add_argument(
            "--only",
            type=_kinds,
            default=tuple(MATRIX),
            metavar="KIND,…",
            help="draw from these kinds of faults",
        )
        parser.add_argument("--keep", metavar="FOLDER", help="keep logs and the append-only file there")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
        return cls(**vars(parser.parse_args(arguments)))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _natural(text: str) -> int:
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _kinds(text: str) -> tuple[str, ...]:
    if unknown := sorted(set(text.split(",")) - set(MATRIX)):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(MATRIX)}")
    return tuple(text.split(","))
