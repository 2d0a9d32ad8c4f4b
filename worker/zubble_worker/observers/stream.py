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

_SLICE_CHARS: Final = 8_192
"""A huge delta is taken in slices, so that it is cut where the loop is."""
_BATCH_CHARS: Final = 256
"""Deltas are counted together when so many characters have come: a fraction of the cost of one by one."""
_LOOP_BATCH_CHARS: Final = 64
"""The same where a cut may be near: a verdict is at most as many tokens late."""


@dataclass(slots=True)
class Stream:
    """Counts one channel and climbs the ladder; tool arguments and code fences are lenient."""

    channel: Channel
    ladder: Ladder
    pending: str = ""
    """Text that has not been counted yet."""
    batch: int = _BATCH_CHARS
    """So many characters are counted together."""
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
        if ladder.burst is None:
            return cls(channel, ladder)
        return cls(channel, ladder, batch=_LOOP_BATCH_CHARS, burst=Burst(ladder.burst.threshold))

    def take(self, *, ended: bool = False) -> Iterator[list[Fired]]:
        """Count what is pending, except for an end that the next delta may still change; slice by slice."""
        text, self.pending = self.pending, ""
        for start in range(0, len(text), _SLICE_CHARS):
            self.pending += text[start : start + _SLICE_CHARS]
            yield self._take(ended=ended and start + _SLICE_CHARS >= len(text))
        self.batch = _LOOP_BATCH_CHARS if self.saturation.count or self.burst else _BATCH_CHARS

    def _take(self, *, ended: bool) -> list[Fired]:
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
            self._climb(run, LENIENCE if lenient else 1, fired)
        return sorted(fired, key=_token) if len(fired) > 1 else fired

    def _burst(self, part: str, *, lenient: bool) -> list[Fired]:
        rung = self.ladder.burst
        found = self.burst.advance(part) if self.burst else None
        if rung is None or found is None or lenient:
            return []
        self.burst = None
        return [self._fired(rung, self.saturation.tokens + found.offset, found.period)]

    def _climb(self, run: Counted, factor: int, fired: list[Fired]) -> None:
        if run.before == 0:
            self.rung = 0
        for rung in self.ladder.rungs[self.rung :]:
            missing = max(rung.threshold * factor - run.before, 1)
            if missing > run.length:
                return
            self.rung += 1
            fired.append(self._fired(rung, run.token + missing - 1, run.period))

    def _fired(self, rung: Rung, token: int, period: int) -> Fired:
        return Fired(rung.threshold, token, period, self.channel, rung.action)

    def state(self) -> dict[str, Any]:
        """All of it but the ladder, as JSON."""
        return {
            "pending": self.pending,
            "batch": self.batch,
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
