"""One channel of one reply: from deltas to rungs reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from zubble_queue.contracts.model import Channel
from zubble_worker.observers.burst import Burst
from zubble_worker.observers.counter import Counter
from zubble_worker.observers.cycle import MORE_COPIES, MORE_COPIES_TO_CUT, Cycle, Cycled
from zubble_worker.observers.fence import Fence
from zubble_worker.observers.ladder import CUTTING, LENIENCE, Action, Fired, Ladder, Rung, Seen
from zubble_worker.observers.leaks import GATE_LEAKS, NUDGE_LEAKS, Leaks
from zubble_worker.observers.saturation import Counted, Saturation
from zubble_worker.observers.tokens import codes, tokenize

TAIL_CHARS: Final = 600
"""What is kept of the text, for a self-check (C5)."""

_SLICE_CHARS: Final = 8_192
"""A huge delta is taken in slices, so that it is cut where the loop is."""
_BATCH_CHARS: Final = 512
"""Deltas are counted together when so many characters have come: a fraction of the cost of one by one."""
_LOOP_BATCH_CHARS: Final = 64
"""The same where a rung is near: a verdict is at most as many tokens late."""
_STRICT_BATCH_CHARS: Final = 64
_ONLY_NEAR: Final[frozenset[Action]] = frozenset({"self_check", "warn"})
"""What the look-back leaves out: it nudges, and then asks."""


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
    cycle_rung: int = 0
    """The same for the look-back."""
    saturation: Saturation = field(default_factory=Saturation)
    cycle: Cycle = field(default_factory=Cycle)
    counter: Counter = field(default_factory=Counter)
    leaks: Leaks = field(default_factory=Leaks)
    fence: Fence = field(default_factory=Fence)
    burst: Burst | None = None
    """Of the strict profile. Gone once it has fired: after that the rungs alone decide (C1)."""

    @classmethod
    def new(cls, channel: Channel, ladder: Ladder) -> Self:
        if ladder.burst is None:
            return cls(channel, ladder)
        return cls(channel, ladder, batch=_STRICT_BATCH_CHARS, burst=Burst(ladder.burst.threshold))

    def take(self, *, ended: bool = False) -> Iterator[list[Fired]]:
        """Count what is pending, except for an end that the next delta may still change; slice by slice."""
        text, self.pending = self.pending, ""
        for start in range(0, len(text), _SLICE_CHARS):
            self.pending += text[start : start + _SLICE_CHARS]
            yield self._take(ended=ended and start + _SLICE_CHARS >= len(text))
        self.batch = _STRICT_BATCH_CHARS if self.burst else self._batch()

    def _batch(self) -> int:
        """As many characters as cannot hold the next rung: each is a token at most."""
        left, factor = _BATCH_CHARS, LENIENCE if self.channel == "tool" or self.fence.opened_by else 1
        for count in filter(None, (self.saturation.count, self.cycle.run)):
            ahead = [
                missing for rung in self.ladder.rungs if (missing := rung.threshold * factor - count) > 0
            ]
            left = min([left, *ahead[:1]])
        return max(left, _LOOP_BATCH_CHARS)

    def _take(self, *, ended: bool) -> list[Fired]:
        text = self.pending
        tokens, self.pending = tokenize(text, ended=ended)
        self.tail = (self.tail + text[: len(text) - len(self.pending)])[-TAIL_CHARS:]
        fired: list[Fired] = []
        for part, fenced in self.fence.parts(codes(tokens)):
            fired += self._advance(part, lenient=fenced or self.channel == "tool")
        return fired

    def _advance(self, part: str, *, lenient: bool) -> list[Fired]:
        factor = LENIENCE if lenient else 1
        fired = self._burst(part, lenient=lenient)
        start = self.saturation.tokens
        for run in self.saturation.advance(part):
            self._climb(run, factor, fired)
        for cycled in self.cycle.advance(part):
            self._climb_cycle(cycled, factor, fired)
        if counting := self.counter.advance(part, self.ladder.top * factor):
            fired.append(
                self._fired(self.ladder.top, start + counting.offset, counting.period, "gate", "counter")
            )
        for leaked in self.leaks.advance(part):
            if leaked.number == NUDGE_LEAKS * factor:
                fired.append(self._fired(NUDGE_LEAKS, leaked.token, None, "nudge", "leaks"))
            if leaked.number == GATE_LEAKS * factor:
                fired.append(self._fired(GATE_LEAKS, leaked.token, None, "gate", "leaks"))
        return sorted(fired, key=_place) if len(fired) > 1 else fired

    @property
    def looping(self) -> bool:
        """Whether the text so far ends in a loop past the second rung."""
        threshold = self.ladder.rungs[1].threshold
        long = self.cycle.run >= max(threshold, MORE_COPIES * self.cycle.period)
        return self.saturation.count >= threshold or (self.cycle.run > 0 and long)

    def _burst(self, part: str, *, lenient: bool) -> list[Fired]:
        rung = self.ladder.burst
        found = self.burst.advance(part) if self.burst else None
        if rung is None or found is None or lenient:
            return []
        self.burst = None
        token = self.saturation.tokens + found.offset
        return [self._fired(rung.threshold, token, found.period, rung.action, "burst")]

    def _climb(self, run: Counted, factor: int, fired: list[Fired]) -> None:
        if run.before == 0:
            self.rung = 0
        for rung in self.ladder.rungs[self.rung :]:
            missing = max(rung.threshold * factor - run.before, 1)
            if missing > run.length:
                return
            self.rung += 1
            token = run.token + missing - 1
            fired.append(self._fired(rung.threshold, token, run.period, rung.action, "saturation"))

    def _climb_cycle(self, cycled: Cycled, factor: int, fired: list[Fired]) -> None:
        """Nudge, ask and cut by exact copies; what inexact ones cover is asked about, at the ladder's top."""
        if cycled.run == 0:
            self.cycle_rung = 0
        rungs = [rung for rung in self.ladder.rungs if rung.action not in _ONLY_NEAR]
        for rung in rungs[self.cycle_rung :]:
            copies = MORE_COPIES_TO_CUT if rung.action in CUTTING else MORE_COPIES
            missing = max(rung.threshold * factor, copies * cycled.period) - cycled.run
            if missing > cycled.length:
                break
            self.cycle_rung += 1
            self._fire_cycle(rung, cycled, max(missing, 1), fired)
        missing = max(self.ladder.top * factor, MORE_COPIES * cycled.period) - cycled.covered
        if 0 < missing <= cycled.length and cycled.run < cycled.covered:
            self._fire_cycle(Rung(self.ladder.top, "gate"), cycled, missing, fired)

    def _fire_cycle(self, rung: Rung, cycled: Cycled, counted: int, fired: list[Fired]) -> None:
        token = cycled.token + counted - 1
        fired.append(self._fired(rung.threshold, token, cycled.period, rung.action, "cycle"))

    def _fired(self, threshold: int, token: int, period: int | None, action: Action, by: Seen) -> Fired:
        return Fired(threshold, token, period, self.channel, action, by)

    def state(self) -> dict[str, Any]:
        """All of it but the ladder, as JSON."""
        return {
            "pending": self.pending,
            "batch": self.batch,
            "tail": self.tail,
            "rung": self.rung,
            "cycle_rung": self.cycle_rung,
            "cycle": self.cycle.state(),
            "counter": self.counter.state(),
            "leaks": asdict(self.leaks),
            "saturation": self.saturation.state(),
            "fence": asdict(self.fence),
            "burst": asdict(self.burst) if self.burst else None,
        }

    @classmethod
    def from_state(cls, channel: Channel, ladder: Ladder, state: dict[str, Any]) -> Self:
        parts = {
            "saturation": Saturation.from_state(state["saturation"]),
            "cycle": Cycle.from_state(state["cycle"]),
            "counter": Counter.from_state(state["counter"]),
            "leaks": Leaks(**state["leaks"]),
            "fence": Fence(**state["fence"]),
            "burst": Burst(**state["burst"]) if state["burst"] else None,
        }
        return cls(channel, ladder, **{**state, **parts})


def _place(fired: Fired) -> int:
    return fired.token
