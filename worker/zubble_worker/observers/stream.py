"""One channel of one reply: from deltas to rungs reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from zubble_queue.contracts.model import Channel
from zubble_worker.observers.burst import Burst
from zubble_worker.observers.fence import Fence
from zubble_worker.observers.ladder import LENIENCE, Fired, Ladder, Rung
from zubble_worker.observers.saturation import Counted, Saturation
from zubble_worker.observers.tokens import codes, tokenize

TAIL_CHARS: Final = 600
"""What is kept of the text, for a self-check (C5)."""


@dataclass(slots=True)
class Stream:
    """Counts one channel and climbs the ladder; tool arguments and code fences are lenient."""

    channel: Channel
    ladder: Ladder
    pending: str = ""
    """Text that has not been counted yet."""
    tail: str = ""
    """The last text that has."""
    rung: int = 0
    """Index of the next one to be reached since the count began."""
    saturation: Saturation = field(default_factory=Saturation)
    fence: Fence = field(default_factory=Fence)
    burst: Burst | None = None
    """Of the strict profile. Gone once it has fired: after that the rungs alone decide (C1)."""

    @classmethod
    def new(cls, channel: Channel, ladder: Ladder) -> Self:
        return cls(channel, ladder, burst=Burst(ladder.burst.threshold) if ladder.burst else None)

    def take(self, *, ended: bool = False) -> list[Fired]:
        """Count what is pending, except for an end that the next delta may still change."""
        text = self.pending
        tokens, self.pending = tokenize(text, ended=ended)
        self.tail = (self.tail + text[: len(text) - len(self.pending)])[-TAIL_CHARS:]
        fired: list[Fired] = []
        for part, fenced in self.fence.parts(codes(tokens)):
            fired += self._advance(part, lenient=fenced or self.channel == "tool")
        return fired

    def _advance(self, part: str, *, lenient: bool) -> list[Fired]:
        fired = self._burst(part, lenient=lenient)
        for run in self.saturation.advance(part):
            fired += self._climb(run, LENIENCE if lenient else 1)
        return sorted(fired, key=_token) if len(fired) > 1 else fired

    def _burst(self, part: str, *, lenient: bool) -> list[Fired]:
        rung = self.ladder.burst
        found = self.burst.advance(part) if self.burst else None
        if rung is None or found is None or lenient:
            return []
        self.burst = None
        return [self._fired(rung, self.saturation.tokens + found.offset, found.period)]

    def _climb(self, run: Counted, factor: int) -> Iterator[Fired]:
        if run.before == 0:
            self.rung = 0
        for rung in self.ladder.rungs[self.rung :]:
            missing = max(rung.threshold * factor - run.before, 1)
            if missing > run.length:
                return
            self.rung += 1
            yield self._fired(rung, run.token + missing - 1, run.period)

    def _fired(self, rung: Rung, token: int, period: int) -> Fired:
        return Fired(rung.threshold, token, period, self.channel, rung.action)

    def state(self) -> dict[str, Any]:
        """All of it but the ladder, as JSON."""
        return {
            "pending": self.pending,
            "tail": self.tail,
            "rung": self.rung,
            "saturation": self.saturation.state(),
            "fence": asdict(self.fence),
            "burst": asdict(self.burst) if self.burst else None,
        }

    @classmethod
    def from_state(cls, channel: Channel, ladder: Ladder, state: dict[str, Any]) -> Self:
        parts = {
            "saturation": Saturation.from_state(state["saturation"]),
            "fence": Fence(**state["fence"]),
            "burst": Burst(**state["burst"]) if state["burst"] else None,
        }
        return cls(channel, ladder, **{**state, **parts})


def _token(fired: Fired) -> int:
    return fired.token
