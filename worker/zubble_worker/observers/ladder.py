"""What a detector does at which count: rungs with actions, validated when they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, Self

from zubble_queue.contracts.model import Channel
from zubble_queue.errors import UnknownName

Action = Literal["observe", "nudge", "self_check", "warn", "gate", "kill", "restart"]
"""observe: only report. nudge: a note for the next turn (C4). self_check: ask beside the stream, diagnostic.
warn: the exact warning of Z14. gate: a fresh short call decides (C5). kill: close the stream, whatever anyone
says. restart: close it and make this call once more, under another seed; never ends the job (C1)."""
Seen = Literal["saturation", "cycle", "counter", "leaks", "burst"]
"""Which of a stream's counters saw it."""
CUTTING: Final[frozenset[Action]] = frozenset({"kill", "restart"})
ASKING: Final[frozenset[Action]] = frozenset({"self_check", "gate"})

RESERVE_TOKENS: Final = 200
"""A call must be able to produce more than the last threshold and this (C3): it takes about that many tokens
until a loop has filled the window."""
LENIENCE: Final = 4
"""Factor on all thresholds in tool arguments and code fences, where a cut loses the call (section 3.4)."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a ladder."""

    threshold: int
    action: Action


@dataclass(frozen=True, slots=True)
class Fired:
    """A rung that was reached."""

    threshold: int
    token: int
    """Where: index of the token in its channel's stream, from 0."""
    period: int | None
    """Tokens after which the text repeats itself."""
    channel: Channel
    action: Action
    by: Seen = "saturation"

    def as_dict(self) -> dict[str, Any]:
        """As `zubble detect --json` prints it."""
        return {
            "threshold": self.threshold,
            "token": self.token,
            "period": self.period,
            "channel": self.channel,
            "action": self.action,
            "by": self.by,
        }


@dataclass(frozen=True, slots=True)
class Ladder:
    """The steps of a detector, lowest first.

    Raises ValueError unless thresholds are positive and strictly ascending and only the last rung kills.
    """

    rungs: tuple[Rung, ...]
    """Thresholds count saturated recycled tokens (C2)."""
    burst: Rung | None = None
    """Z15: fires when a piece of at most 8 tokens is followed by `threshold` copies of itself."""

    def __post_init__(self) -> None:
        thresholds = [0, *(rung.threshold for rung in self.rungs)]
        if len(thresholds) == 1 or any(low >= high for low, high in pairwise(thresholds)):
            raise ValueError(f"thresholds must be positive and strictly ascending, not {thresholds[1:]}")
        if any(rung.action in CUTTING for rung in self.rungs[:-1]):
            raise ValueError("only the last rung may cut the stream")
        if self.burst and self.burst.threshold < 1:
            raise ValueError("a burst needs at least one repeat")

    def state(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        burst = state["burst"]
        return cls(tuple(Rung(**rung) for rung in state["rungs"]), Rung(**burst) if burst else None)

    @property
    def top(self) -> int:
        return self.rungs[-1].threshold

    def validate_reachable(self, max_tokens: int) -> Ladder:
        """This ladder, or one scaled so that a call of max_tokens tokens can reach every rung (C3).

        Raises ValueError when max_tokens leaves no room for so many rungs. Lenient places are not considered:
        there the end of the call may come before the last rung.
        """
        room = max_tokens - RESERVE_TOKENS - 1
        if room >= self.top:
            return self
        if room < len(self.rungs):
            raise ValueError(f"{max_tokens} tokens leave no room for {len(self.rungs)} thresholds")
        return replace(self, rungs=tuple(self._scaled(room)))

    def _scaled(self, room: int) -> Iterator[Rung]:
        above, last = len(self.rungs), 0
        for rung in self.rungs:
            above -= 1
            last = min(max(rung.threshold * room // self.top, last + 1), room - above)
            yield replace(rung, threshold=last)


GRADUATED: Final = Ladder(
    (
        Rung(50, "nudge"),
        Rung(500, "self_check"),
        Rung(1_000, "warn"),
        Rung(1_500, "gate"),
        Rung(3_000, "kill"),
    )
)
"""Z14 with C2's unit."""
STRICT: Final = replace(GRADUATED, burst=Rung(5, "restart"))
"""Z15, only when asked for: one restart, then graduated (C1)."""
PROFILES: Final[Mapping[str, Ladder]] = {"graduated": GRADUATED, "strict": STRICT}


def ladder_for(profile: str) -> Ladder:
    """A profile's ladder. Raises UnknownName."""
    try:
        return PROFILES[profile]
    except KeyError:
        raise UnknownName("profile", profile, PROFILES) from None
