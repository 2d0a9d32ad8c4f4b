"""What KEDA and the HorizontalPodAutoscaler make of a number: how many pods there are to be.

After the documentation of Kubernetes (autoscaling/v2, external metric with `averageValue`) and of KEDA 2:
- KEDA looks every `polling_seconds`: from zero to one where the number is above zero, to zero where it was
  not for `cooldown_seconds`; in between the HPA decides, every `sync_seconds`.
- The HPA leaves the pods alone while the number is within the tolerance of what they are; else it rounds up.
- Downwards the highest recommendation of the window counts; up and down at most so much in a period.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults of Kubernetes and KEDA."""

    most: int
    """maxReplicas; the least is none."""
    polling_seconds: float = 30.0
    sync_seconds: float = 15.0
    cooldown_seconds: float = 300.0
    tolerance: float = 0.1
    window_seconds: float = 300.0
    """scaleDown.stabilizationWindowSeconds."""
    up_share: float = 1.0
    up_pods: int = 4
    """Per sync, whichever is more."""
    down_share: float = 1.0
    """Per minute."""


@dataclass(slots=True)
class Autoscaler:
    """Decides; the number is in pods, so that its target is one."""

    settings: Settings
    _active_at: float = -math.inf
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _went_down: deque[tuple[float, int]] = field(default_factory=deque)

    def poll(self, now: float, value: float, pods: int) -> int:
        """As KEDA's operator decides."""
        if value > 0:
            self._active_at = now
            return max(pods, 1)
        return pods if now - self._active_at < self.settings.cooldown_seconds else 0

    def sync(self, now: float, value: float, pods: int) -> int:
        """As the HPA decides; with no pods it does nothing."""
        if pods == 0:
            self._recommended.clear()
            return 0
        wanted = min(max(self._rounded(value, pods), 1), self.settings.most)
        self._recommended.append((now, wanted))
        while self._recommended[0][0] <= now - self.settings.window_seconds:
            self._recommended.popleft()
        if wanted > pods:
            return min(wanted, self._highest(pods))
        calm = max(count for _, count in self._recommended)
        decided = min(pods, max(calm, self._lowest(now, pods)))
        if decided < pods:
            self._went_down.append((now, pods - decided))
        return decided

    def _rounded(self, value: float, pods: int) -> int:
        return pods if abs(1 - value / pods) <= self.settings.tolerance else math.ceil(value)

    def _highest(self, pods: int) -> int:
        return pods + max(math.ceil(pods * self.settings.up_share), self.settings.up_pods)

    def _lowest(self, now: float, pods: int) -> int:
        """A share of the pods of a minute ago may go in a minute."""
        while self._went_down and self._went_down[0][0] <= now - 60:
            self._went_down.popleft()
        gone = sum(count for _, count in self._went_down)
        return max(0, pods - (math.ceil((pods + gone) * self.settings.down_share) - gone))
