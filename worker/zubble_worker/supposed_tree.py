"""The state of a work tree that nobody fingerprinted, supposed from the calls of a stored trajectory."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from zubble_queue.trajectories.steps import Call
from zubble_worker.observers.doom_loop import action_key

_UNCHANGED: Final = "as it was"
_TOOLS: Final = re.compile(
    r"edit|write|create|insert|replace|patch|append|delete|undo|remove|rename|move", re.IGNORECASE
)
"""In the name of a tool, or in the command that is its argument."""
_PROGRAMS: Final = re.compile(
    r"(?:^|[;&|\n(])\s*(?:sudo\s+)?(?:append|chmod|cp|create|dd|edit|insert|install|ln|mkdir|mv|patch|rm|"
    r"rmdir|tee|touch|truncate|unzip|git\s+(?:am|apply|checkout|cherry-pick|clean|clone|merge|pull|rebase|"
    r"reset|restore|revert|stash|switch)|tar\s+-?\w*x|(?:apt|apt-get|cargo|npm|pip|pip3|yarn)\s+\w*\s*install)\b"
)
_IN_PLACE: Final = re.compile(r"\b(?:sed|perl)\b[^|;&\n]*\s-\w*i")
_REDIRECTED: Final = re.compile(r"(?<![0-9&>=-])>>?\s*(?!/dev/|&)[\w./~$\"'{]")
_READ_CHARS: Final = 65_536


class SupposedTree:
    """Another state after each change that was not made before; the same change again changes nothing."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._state = _UNCHANGED

    def before(self, call: Call) -> str:
        """The state in which a call is made: the fingerprint that was taken, else what is supposed."""
        if call.state is not None:
            return call.state
        state, key = self._state, action_key(call.tool, call.arguments)
        if call.end == "ok" and may_change(call) and key not in self._made:
            self._made.add(key)
            self._state = sha256(f"{state}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return state


def may_change(call: Call) -> bool:
    """Whether a call looks like one that changes files. Programs that only may, such as tests, do not."""
    arguments = call.arguments[:_READ_CHARS]
    if call.tool != "shell":
        return _TOOLS.search(call.tool) is not None and '"command": "view"' not in arguments
    return any(pattern.search(arguments) for pattern in (_PROGRAMS, _IN_PLACE, _REDIRECTED))
