"""What became of a sandbox's requests: a line in the log for each, a count by host for the record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import structlog

from zubble_queue.contracts.sandbox import HostUse
from zubble_sandbox.egress.refusal import Refused
from zubble_sandbox.egress.requests import Target

MAX_HOSTS: Final = 100
"""Whoever tries more names is counted under one of them."""
OTHERS: Final = "(others)"
MAX_LINES: Final = 1_000
"""Decisions of one sandbox that are logged; beyond that they are only counted."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Count:
    """One host's."""

    allowed: int = 0
    denied: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Tally:
    """One sandbox's.

    Args:
        sandbox: Its name, for the log.
    """

    def __init__(self, sandbox: str) -> None:
        self._log = _log.bind(sandbox=sandbox)
        self._counts: dict[str, Count] = {}
        self._lines = 0

    def allow(self, target: Target, address: str) -> Count:
        """The host's count, for the bytes that now flow."""
        self._say("egress_allowed", host=target.host, port=target.port, address=address)
        count = self._of(target.host)
        count.allowed += 1
        return count

    def deny(self, refused: Refused) -> None:
        self._say("egress_denied", host=refused.host, reason=refused.reason, cause=refused.sentence)
        count = self._of(refused.host)
        count.denied += 1
        count.reasons[refused.reason] = count.reasons.get(refused.reason, 0) + 1

    def uses(self) -> tuple[HostUse, ...]:
        """By host, sorted."""
        return tuple(
            HostUse(
                host=host,
                allowed=count.allowed,
                denied=count.denied,
                sent_bytes=count.sent_bytes,
                received_bytes=count.received_bytes,
                reasons=tuple(sorted(count.reasons)),
            )
            for host, count in sorted(self._counts.items())
        )

    def _of(self, host: str) -> Count:
        if host not in self._counts and len(self._counts) >= MAX_HOSTS:
            host = OTHERS
        return self._counts.setdefault(host, Count())

    def _say(self, action: str, **facts: object) -> None:
        self._lines += 1
        if self._lines <= MAX_LINES:
            self._log.info("egress", action=action, **facts)
        elif self._lines == MAX_LINES + 1:
            self._log.warning("further decisions are only counted", action="egress_muted")
