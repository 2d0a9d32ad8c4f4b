"""What a call that nobody heard to its end has cost at most: what came, and what may have been on its way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from zubble_queue.contracts.model import Admission, Channel, Cut, TryEnd
from zubble_worker.observers.repetition import StreamGuard
from zubble_worker.pressure import Pressure

_PROVIDER_FACTOR: Final = 2
"""Providers count up to twice the detector's words and signs, and stream up to twice as fast as a call is."""
_TOKENS_PER_SECOND: Final = 100.0
"""Of a model that has not ended a call of this run yet."""
_NOTICE_SECONDS: Final = 0.5
"""An endpoint goes on for a moment before it notices that nobody listens."""


class Hearing:
    """Listens in on one call: to its stream on the guard's behalf, to its tries on the admission's.

    A process that stood still finds a whole reply in its buffers, and may have to give the call up before it
    can read it; the endpoint bills it all the same. So time in which a try was open and nothing came counts.

    Args:
        guard: Is shown every piece.
        admission: Lets tries in; without one, a single try is taken to have been made at once.
        pressure: Is shown every piece that the guard let pass.
        tokens_per_second: Of the run's last whole call.
    """

    def __init__(
        self,
        guard: StreamGuard,
        admission: Admission | None,
        *,
        pressure: Pressure | None = None,
        tokens_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard, self._admission, self._clock = guard, admission, clock
        self._pressure = pressure
        self._pace = _PROVIDER_FACTOR * (tokens_per_second or _TOKENS_PER_SECOND)
        self._heard = None if admission else clock()
        self._tries, self._unheard_seconds = 0, 0.0

    @property
    def admission(self) -> Admission | None:
        """What the call is to be given."""
        return self if self._admission else None

    def feed(self, channel: Channel, text: str) -> Cut | None:
        self._heard = self._clock()
        cut = self._guard.feed(channel, text)
        return cut if cut or not self._pressure else self._pressure.feed(text)

    @property
    def patience_seconds(self) -> float:
        assert self._admission is not None
        return self._admission.patience_seconds

    async def enter(self, tokens: int) -> None:
        assert self._admission is not None
        await self._admission.enter(tokens)
        self._heard = self._clock()

    async def leave(self, end: TryEnd) -> None:
        assert self._admission is not None
        if end.tokens and end.kind != "throttled":
            self._end()
        self._heard = None
        await self._admission.leave(end)

    def give_up(self) -> None:
        """The call was cancelled."""
        if self._heard is not None:
            self._end()

    @property
    def tries(self) -> int:
        """Those whose prompt was sent, as far as is known; each may be billed."""
        return max(self._tries, 1)

    @property
    def completion_tokens(self) -> int:
        """As the provider counts them, at most, over all tries."""
        return _PROVIDER_FACTOR * self._guard.tokens + math.ceil(self._pace * self._unheard_seconds)

    def _end(self) -> None:
        assert self._heard is not None
        self._tries += 1
        self._unheard_seconds += self._clock() - self._heard + _NOTICE_SECONDS
        self._heard = None
