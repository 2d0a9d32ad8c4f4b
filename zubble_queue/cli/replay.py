"""`zubble replay`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Stored trajectories.")],
    as_json: options.Json = False,
) -> int:
    """Run all detectors over stored trajectories: what they would have said, and at which step.

    Reads event logs of ours, ATIF, mini-swe-agent, SWE-agent (.traj), OpenHands and bare lists
    of tool calls; the content tells which.
    Exits with 2 when a file cannot be read; the others are replayed.

    \b
    Examples:
      zubble replay trajectory.json
      zubble replay runs/*.traj --json
    """
    report = Report("replay", as_json=as_json)
    from zubble_queue.cli import replaying

    return replaying.replay(files, report)
