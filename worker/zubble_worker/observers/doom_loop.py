"""Sees an agent that is about to do the same again (Z22, F5, C12).

Each call is looked at before its dispatch, together with the state of the work tree: the same command in a
tree that has changed is another step. The third of the same in a row is refused, and so is the end of the
third round of a cycle of up to five; so is the next that goes on with it; the one after that stops the run.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, Self

from zubble_worker.observers import Scope

REPEATS: Final = 3
"""Of identical calls in a row (Z22, F5), and of a cycle."""
LONGEST_CYCLE: Final = 5
REFUSALS: Final = 2
"""So often the same loop is refused; then it is stopped."""

_KEPT_CALLS: Final = REPEATS * LONGEST_CYCLE
_EVIDENCE_CHARS: Final = 200
_STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a call."""

    kind: Literal["allow", "refuse", "stop"]
    text: str = ""
    """refuse: answers the model in place of a result. stop: the reason, for the record."""
    evidence: dict[str, Any] = field(default_factory=dict)


_ALLOW: Final = Verdict("allow")


class DoomLoop:
    """Judges the calls of one task. Pure; outlives context resets, and workers through `state` (C37)."""

    def __init__(self) -> None:
        self._calls: deque[str] = deque(maxlen=_KEPT_CALLS)
        """Fingerprints of the last calls, refused ones too."""
        self._refusals: dict[str, int] = {}
        """By loop, wherever in its cycle it was seen."""

    def check(self, arguments: str, state_fingerprint: str, *, tool: str = "shell") -> Verdict:
        """Judge a call that is about to be dispatched.

        Args:
            arguments: The command, or a tool's arguments as JSON text.
            state_fingerprint: Changes when the work tree does.
            tool: Its name.
        """
        self._calls.append(_fingerprint(action_key(tool, arguments), state_fingerprint))
        cycle = self._cycle()
        if cycle is None:
            return _ALLOW
        loop = _fingerprint(*sorted(set(cycle)))
        refused = self._refusals[loop] = self._refusals.get(loop, 0) + 1
        evidence = {
            "cycle": len(cycle),
            "repeats": REPEATS,
            "seen": refused,
            "call": f"{tool}: {arguments[:_EVIDENCE_CHARS]}".encode("utf-8", "replace").decode("utf-8"),
        }
        if refused > REFUSALS:
            return Verdict("stop", _reason(len(cycle)), evidence)
        return Verdict("refuse", _refusal(len(cycle), last=refused == REFUSALS), evidence)

    def _cycle(self) -> list[str] | None:
        """The shortest cycle that the last calls have gone through often enough."""
        calls = list(self._calls)
        for length in range(1, LONGEST_CYCLE + 1):
            cycle = calls[-length:]
            if calls[-REPEATS * length :] == cycle * REPEATS:
                return cycle
        return None

    def reset(self, scope: Scope) -> None:
        """Only a new task has no past: after a context reset the same loop must not get a fresh three."""
        if scope == "task":
            self._calls.clear()
            self._refusals.clear()

    def state(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {"version": _STATE_VERSION, "calls": list(self._calls), "refusals": dict(self._refusals)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The object that `state` was taken from. Raises ValueError when it is of another version."""
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"doom loop state of version {state.get('version')!r}, not {_STATE_VERSION}")
        doom_loop = cls()
        doom_loop._calls.extend(state["calls"])
        doom_loop._refusals.update(state["refusals"])
        return doom_loop


def action_key(tool: str, arguments: str) -> str:
    """A call as one text that is equal for equal calls (F5).

    JSON objects and arrays with their keys sorted at every level; anything else is shell text, in which only
    spacing that cannot matter is evened out: all of it in a single line, line ends in a script.
    """
    return f"{tool} {_canonical_json(arguments) or _even_spacing(arguments)}"


def _canonical_json(arguments: str) -> str | None:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict | list):
        return None
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _even_spacing(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) == 1:
        return " ".join(lines[0].split())
    return "\n".join(line.rstrip() for line in lines)


def _fingerprint(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _what(cycle: int) -> str:
    if cycle == 1:
        return f"the same command {REPEATS} times in a row"
    return f"the same {cycle} commands in turn, {REPEATS} times over"


def _refusal(cycle: int, *, last: bool) -> str:
    warning = " If you repeat it once more, the run is stopped." if last else ""
    return (
        f"This note is from the harness, not from the user: the command was not run. It is {_what(cycle)}, "
        "and the work tree has not changed in between, so it would show nothing new. Use what the earlier "
        f"results said, do something else, or report why you cannot go on.{warning}"
    )


def _reason(cycle: int) -> str:
    return f"{_what(cycle)} without a change in the work tree; refused {REFUSALS} times and tried again"
