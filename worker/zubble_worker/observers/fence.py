"""Knows which part of a markdown text is inside a code fence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zubble_worker.observers.tokens import code

_NEWLINE: Final = code("\n")
_TICK: Final = code("`")
_TILDE: Final = code("~")
_MARKERS: Final = (_NEWLINE + 3 * _TICK, _NEWLINE + 3 * _TILDE)
"""Three at the start of a line open a fence; a line that starts with the same three closes it."""
_MARKER_TOKENS: Final = 4


@dataclass(slots=True)
class Fence:
    """One stream's place in or outside a fence."""

    opened_by: str = ""
    """The marker of the fence we are in."""
    last: str = _NEWLINE
    """The codes of the last three tokens; a stream starts as a line does."""

    def parts(self, codes: str) -> list[tuple[str, bool]]:
        """Cut the next tokens where a fence opens or closes; each part with whether it is inside one."""
        known, before = self.last + codes, len(self.last)
        self.last = known[1 - _MARKER_TOKENS :]
        if _TICK not in codes and _TILDE not in codes:
            return [(codes, bool(self.opened_by))]
        parts: list[tuple[str, bool]] = []
        start = 0
        while (at := self._next_marker(known, start)) >= 0:
            end = at + _MARKER_TOKENS
            parts.append((known[max(start, before) : end], bool(self.opened_by)))
            self.opened_by = "" if self.opened_by else known[at:end]
            start = end
        parts.append((known[max(start, before) :], bool(self.opened_by)))
        return parts

    def _next_marker(self, known: str, start: int) -> int:
        markers = (self.opened_by,) if self.opened_by else _MARKERS
        return min((at for marker in markers if (at := known.find(marker, start)) >= 0), default=-1)
