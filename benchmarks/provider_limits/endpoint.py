"""An endpoint that refuses everybody now and then, and its log judged against the rate that was promised."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zubble_queue.testing import MockEndpoint, Script
from zubble_worker.models import wire

if TYPE_CHECKING:
    from zubble_worker.models.mock_delivery import Call
    from zubble_worker.models.mock_http import Exchange


class MoodyEndpoint(MockEndpoint):
    """Plays a script, and in bursts answers 429 to whoever asks.

    Args:
        script: What to answer otherwise.
        every_seconds: From the beginning of one burst to the next; the first begins after half of it.
        burst_seconds: How long one lasts; 0 for none.
    """

    def __init__(self, script: Script, *, every_seconds: float, burst_seconds: float) -> None:
        super().__init__(script)
        self._every, self._burst = every_seconds, burst_seconds
        self._first: float | None = None

    async def _answer(self, asked: Any, call: Call, exchange: Exchange) -> None:
        if not self._in_a_burst():
            await super()._answer(asked, call, exchange)
            return
        call.status, call.finish = 429, "burst"
        headers = {"retry-after": f"{max(1, round(self._burst))}"}
        await exchange.send_json(429, wire.error("too many requests", 429), headers)

    def _in_a_burst(self) -> bool:
        now = time.monotonic()
        self._first = self._first or now
        return (now - self._first + self._every / 2) % self._every < self._burst

    @property
    def refused(self) -> int:
        return sum(call.status == 429 for call in self.calls)

    @property
    def answered(self) -> int:
        return sum(call.status == 200 for call in self.calls)


def most_within(times: Iterable[float], seconds: float) -> int:
    """The most of the given times that lie in any window of so many seconds."""
    window: deque[float] = deque()
    most = 0
    for moment in sorted(times):
        window.append(moment)
        while window[0] <= moment - seconds:
            window.popleft()
        most = max(most, len(window))
    return most
