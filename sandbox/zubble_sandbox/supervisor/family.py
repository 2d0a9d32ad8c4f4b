# pathlib and contextlib are slow to import:
# ruff: noqa: PTH123, PTH208, SIM105
"""All processes of the sandbox at once: stopping, continuing, ending them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` and `collections.abc` are slow to import
    from collections.abc import Iterable

SIGINT, SIGKILL, SIGCONT, SIGSTOP = 2, 9, 18, 19
"""As on x86-64 and arm64; importing `signal` would cost a tenth of the time to open a sandbox."""


class Namespace:
    """Pid 1 of a pid namespace: one call reaches every other process, also one that is just being forked."""

    def signal(self, number: int) -> None:
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            pass


class Descendants:
    """Without a namespace: whoever descends from this process, which adopts orphans as a sub-reaper."""

    def signal(self, number: int) -> None:
        """Stop them first, so that none forks away while the others are signalled."""
        known: set[int] = set()
        while new := set(_descendants(os.getpid())) - known:
            known |= new
            _signal_each(new, SIGSTOP if number != SIGCONT else SIGCONT)
        if number not in {SIGSTOP, SIGCONT}:
            _signal_each(known, number)


def _signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        waiting += (own := children.get(waiting.pop(), []))
        found += own
    return found


def _parent(name: str) -> int | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def reap(*, block: bool) -> dict[int, int]:
    """Children that have ended: pid to wait status. Raises ChildProcessError when there are none at all."""
    ended: dict[int, int] = {}
    options = 0 if block else os.WNOHANG
    try:
        while True:
            pid, status = os.waitpid(-1, options)
            if not pid:
                return ended
            ended[pid] = status
            options = os.WNOHANG
    except ChildProcessError:
        if ended:
            return ended
        raise


def end_all(family: Namespace | Descendants) -> dict[int, int]:
    """Kill until nobody is left; their wait statuses."""
    ended: dict[int, int] = {}
    try:
        while True:
            family.signal(SIGKILL)
            ended.update(reap(block=True))
    except ChildProcessError:
        return ended
