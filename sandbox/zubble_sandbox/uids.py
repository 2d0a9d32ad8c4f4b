"""A user for each sandbox that a root worker opens: taken from a range, held by a lock, given back."""

from __future__ import annotations

import os
import pwd
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.locks import try_lock
from zubble_sandbox.records import private_dir

DEFAULT_BASE: Final = 60_000
DEFAULT_COUNT: Final = 512


@dataclass(frozen=True, slots=True)
class HeldUid:
    """Ours until given back, or until this process ends: the kernel drops the lock then."""

    uid: int
    lock_fd: int

    def give_back(self) -> None:
        os.close(self.lock_fd)


class UidPool:
    """Uids of one range, shared by all workers of this machine through lock files."""

    def __init__(self, folder: Path, base: int = DEFAULT_BASE, count: int = DEFAULT_COUNT) -> None:
        if base < 1 or count < 1:
            raise ValueError("the range of uids must be positive: uid 0 never runs a sandbox")
        self._folder, self._base, self._count = folder, base, count
        self._next = random.randrange(count)  # noqa: S311 - only spreads workers over the range

    def take(self) -> HeldUid:
        """Raises SandboxUnavailable when all are in use."""
        folder = private_dir(self._folder)
        for _ in range(self._count):
            uid = self._base + self._next
            self._next = (self._next + 1) % self._count
            if not _belongs_to_somebody(uid) and (fd := try_lock(folder / str(uid))) is not None:
                return HeldUid(uid, fd)
        raise SandboxUnavailable(f"All {self._count} uids from {self._base} on are in use by sandboxes.")


def _belongs_to_somebody(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
