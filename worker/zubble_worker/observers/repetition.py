"""Sees text that repeats itself while it streams (Z14, Z15, C1..C6, C37).

`RepetitionDetector` counts and reports, `StreamGuard` acts on a model's stream, `detect_file` reads a file.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, get_args

from zubble_queue.contracts.ending import Stop
from zubble_queue.contracts.model import Channel, Cut
from zubble_queue.errors import BadInput
from zubble_worker.observers import Scope
from zubble_worker.observers.ladder import ASKING, CUTTING, GRADUATED, Fired, Ladder, ladder_for
from zubble_worker.observers.stream import Stream

EVIDENCE_CHARS: Final = 300
"""How much of the text goes into the record. It is never shown to the model (invariant 5)."""

WARNING: Final = "STOP! Restart with fresh context or you will be terminated."
"""Word for word (section 1.13)."""

RESTART_PREFIX: Final = "restart_prefix"
"""The action of a cut for a nudge."""

_PLACES: Final[dict[Channel, str]] = {
    "text": "in the text",
    "reasoning": "in the reasoning",
    "tool": "in the arguments of a tool call",
}
_CHANNELS: Final[tuple[Channel, ...]] = get_args(Channel)
_READ_CHARS: Final = 65_536
_STATE_VERSION: Final = 2


class RepetitionDetector:
    """Counts repetition in one reply, in each channel for itself. Pure: no I/O, no clock.

    Deltas may be cut anywhere: the same text reaches the same rungs at the same tokens.

    Args:
        ladder: What happens at which count. Ladders are validated when they are made.
    """

    def __init__(self, ladder: Ladder = GRADUATED) -> None:
        self.ladder = ladder
        self.streams: dict[Channel, Stream] = {}
        """The counters of each channel; the detector's own, and the guard's."""
        self.reset("stream")

    def feed(self, channel: Channel, text: str) -> list[Fired]:
        """Take the next delta; returns the rungs reached, in order, up to a few deltas late."""
        stream = self.streams[channel]
        stream.pending += text
        if len(stream.pending) < stream.batch:
            return []
        return [one for fired in stream.take() for one in fired]

    def finish(self) -> list[Fired]:
        """Take what is left at the end of the reply; harmless when repeated."""
        return [one for stream in self.streams.values() for fired in stream.take(ended=True) for one in fired]

    def tokens(self, channel: Channel) -> int:
        """How many tokens of a channel have been counted."""
        return self.streams[channel].saturation.tokens

    def tail(self, channel: Channel) -> str:
        """The last 600 characters counted, as UTF-8 can hold them. Possibly degenerate: not for prompts."""
        return self.streams[channel].tail.encode("utf-8", "replace").decode("utf-8")

    def reset(self, scope: Scope) -> None:  # noqa: ARG002 - every observer has it; these counters outlive nothing
        """Forget everything: no text counter lives longer than a reply, hence none than a context (C37)."""
        self.streams.update({channel: Stream.new(channel, self.ladder) for channel in _CHANNELS})

    def state(self) -> dict[str, Any]:
        """Everything, as JSON to be written as ASCII: its strings may hold half a surrogate pair."""
        streams = {channel: stream.state() for channel, stream in self.streams.items()}
        return {"version": _STATE_VERSION, "ladder": self.ladder.state(), "streams": streams}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The detector that `state` was taken from. Raises ValueError when it is of another version."""
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"detector state of version {state.get('version')!r}, not {_STATE_VERSION}")
        detector = cls(Ladder.from_state(state["ladder"]))
        for channel in _CHANNELS:
            kept = state["streams"][channel]
            detector.streams[channel] = Stream.from_state(channel, detector.ladder, kept)
        return detector


class StreamGuard:
    """Watches one reply (a StreamWatcher): orders the cut at the rung that kills, keeps what else was seen.

    Reading `fired`, `notes` or `tokens` means that the reply has ended.

    Args:
        ladder: What happens at which count.
        ask: Told of each rung that asks somebody, at once; must return in microseconds.
        restarts: Whether the reply can go on from its beginning. Then a nudge cuts it, where the loop is in
            its text and in no code fence (C4).
    """

    def __init__(
        self,
        ladder: Ladder = GRADUATED,
        ask: Callable[[Fired, StreamGuard], None] | None = None,
        *,
        restarts: bool = False,
    ) -> None:
        self._ask, self._restarts = ask, restarts
        self._detector = RepetitionDetector(ladder)
        self._streams = self._detector.streams
        self._fired: list[Fired] = []
        self.cut: Cut | None = None
        """The order, once given."""

    def feed(self, channel: Channel, text: str) -> Cut | None:
        if self.cut:  # what comes after it is not looked at
            return self.cut
        stream = self._streams[channel]
        stream.pending += text
        if len(stream.pending) >= stream.batch:
            self._take(stream)
        return self.cut

    def _take(self, stream: Stream) -> None:
        """Count what is pending, up to a cut."""
        for fired in stream.take():
            self._fired += fired
            if cutting := next((one for one in fired if self._cuts(one, stream)), None):
                restart = {"action": RESTART_PREFIX} if cutting.action == "nudge" else {}
                self.cut = Cut(Stop.LOOP_TEXT.value, self._evidence(cutting) | restart)
                return
            for one in fired:
                if self._ask and one.action in ASKING:
                    self._ask(one, self)

    def _cuts(self, fired: Fired, stream: Stream) -> bool:
        if fired.action in CUTTING:
            return True
        has_onset = fired.by in {"saturation", "cycle"} and fired.channel == "text"
        return self._restarts and fired.action == "nudge" and has_onset and not stream.fence.opened_by

    def confirm(self, gate: Fired) -> None:
        """Somebody else finds the reply stuck, too: the next delta closes the stream."""
        self.cut = self.cut or Cut(Stop.LOOP_TEXT.value, self._evidence(gate))

    def tail(self, channel: Channel) -> str:
        """The last 600 characters counted so far."""
        return self._detector.tail(channel)

    def counted(self, channel: Channel) -> int:
        """The tokens counted so far."""
        return self._detector.tokens(channel)

    def _evidence(self, fired: Fired) -> dict[str, Any]:
        """The action tells the end from one more try: under another seed (C1), from before the loop (C4)."""
        tail = self._detector.tail(fired.channel)[-EVIDENCE_CHARS:]
        return {**fired.as_dict(), "text_tail": tail}

    @property
    def fired(self) -> list[Fired]:
        """Every rung reached; one that only the very end reached is reported, but cuts nothing any more."""
        self._fired += self._detector.finish()
        return self._fired

    @property
    def unfinished_loop(self) -> Cut | None:
        """The loop, past the second rung, that a reply was still in when something else ended it.

        Providers count more tokens than the detector, so max_tokens may end a loop before the last rung does.
        """
        for fired in reversed(self.fired):
            if self._streams[fired.channel].looping:
                return Cut(Stop.LOOP_TEXT.value, self._evidence(fired))
        return None

    @property
    def notes(self) -> list[str]:
        """What to tell the model at its next turn, strongest first; a running reply takes nothing in (C4).

        Never quotes the loop.
        """
        nudge = next((fired for fired in self.fired if fired.action == "nudge"), None)
        warned = any(fired.action == "warn" for fired in self.fired)
        return [WARNING] * warned + ([_nudge(nudge)] if nudge else [])

    @property
    def tokens(self) -> int:
        """How many tokens came, in all channels: words and signs, somewhat fewer than a provider counts."""
        self._fired += self._detector.finish()
        return sum(self._detector.tokens(channel) for channel in _CHANNELS)


def _nudge(fired: Fired) -> str:
    return (
        "This note is from the harness, not from the user: your last reply began to repeat itself "
        f"{_PLACES[fired.channel]}. Do not go on with it. Say only what is new, and take the next step."
    )


def detect_file(path: str | PathLike[str], profile: str = "graduated") -> dict[str, Any]:
    """What the detector sees in a text file of any size, read as one reply: `zubble detect`.

    Bytes that are not UTF-8 are read as U+FFFD. Raises BadInput when the file cannot be read, and UnknownName
    for an unknown profile.
    """
    detector = RepetitionDetector(ladder_for(profile))
    fired: list[Fired] = []
    try:
        with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
            while text := file.read(_READ_CHARS):
                fired += detector.feed("text", text)
    except OSError as error:
        raise BadInput([f"{path} cannot be read: {error.strerror or error}."]) from error
    fired += detector.finish()
    return {
        "tokens": detector.tokens("text"),
        "profile": profile,
        "fired": [one.as_dict() for one in fired],
    }
