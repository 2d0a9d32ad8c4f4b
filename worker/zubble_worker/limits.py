"""Room for many agents in one process: file descriptors."""

from __future__ import annotations

import resource
from typing import Final

import structlog

_log = structlog.get_logger(__name__)
FILES_PER_SLOT: Final = 8
"""Measured: a waiting agent holds five, for its sandbox and its stream; verify opens a second sandbox."""
FILES_PER_EGRESS: Final = 65
"""A proxy of a sandbox with an allow-list has 32 connections of two ends each, and listens."""
_FILES_OF_ITS_OWN: Final = 256


def make_room_for_files(slots: int, *, egress: bool = False) -> int:
    """Raise the soft limit of open files to what the slots need, as far as the hard one allows.

    Args:
        slots: Attempts at the same time.
        egress: Whether their sandboxes may have an allow-list of hosts.

    Returns:
        The soft limit now. Where it is too low a warning says what to set.
    """
    each = FILES_PER_SLOT + (FILES_PER_EGRESS if egress else 0)
    wanted = each * slots + _FILES_OF_ITS_OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if resource.RLIM_INFINITY != soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if resource.RLIM_INFINITY != soft < wanted:
        sentence = (
            f"{slots} slots may need {wanted} open files; the limit is {hard}: raise it, or lower slots"
        )
        _log.warning(sentence, action="few_open_files")
    return soft
