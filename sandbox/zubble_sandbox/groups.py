"""One sandbox's control groups: counting, killing everybody, removing them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_sandbox.hierarchies import write, write_if_there

END_SECONDS: Final = 2.0
"""How long the processes of a killed group may take to be gone."""
_POLL_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Group:
    """One sandbox's place in every hierarchy that is used."""

    folders: tuple[Path, ...]
    oom_file: Path
    """Its line `oom_kill` counts the processes that were killed because the memory was used up."""

    def oom_kills(self) -> int:
        """How many so far. Raises OSError when the group is gone."""
        words = self.oom_file.read_text().split()
        return int(words[words.index("oom_kill") + 1])


def remove(folders: Iterable[Path]) -> list[Path]:
    """Remove those groups in which nobody is any more; the others."""
    return [folder for folder in folders if not _removed(folder)]


def end(folders: Iterable[Path]) -> bool:
    """Kill everybody in these groups and remove them, blocking up to END_SECONDS.

    Returns:
        Whether there was somebody.
    """
    left = [folder for folder in folders if folder.is_dir()]
    deadline = time.monotonic() + END_SECONDS
    met = False
    while left:
        for folder in left:
            met = _kill(folder) or met
        left = remove(left)
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(_POLL_SECONDS)
    return met


def _kill(folder: Path) -> bool:
    """True when somebody was in it."""
    members = _members(folder)
    with contextlib.suppress(OSError):
        if members and (folder / "cgroup.kill").exists():
            write(folder / "cgroup.kill", "1")
        elif members:
            write_if_there(folder / "pids.max", "0")  # nobody forks away from us
            _kill_each(folder, members)
    return bool(members)


def _kill_each(folder: Path, members: Iterable[int]) -> None:
    """By descriptor, and only who is a member still: a number may belong to a stranger by now."""
    with contextlib.ExitStack() as fds:
        held: dict[int, int] = {}
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid)
                fds.callback(os.close, held[pid])
        for pid in _members(folder) & held.keys():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[pid], signal.SIGKILL)


def _members(folder: Path) -> set[int]:
    """Pids as seen from here; 0 is one that cannot be seen."""
    try:
        return {int(pid) for pid in (folder / "cgroup.procs").read_text().split()} - {0}
    except OSError:
        return set()


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
