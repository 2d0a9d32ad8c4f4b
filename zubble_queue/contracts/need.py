"""What a task needs of a worker, and what workers together offer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A pool, a sandbox's backend and a model; a worker that has all three can run the task."""

    pool: str
    sandbox: str
    model: str

    @property
    def key(self) -> str:
        """As in `default/bubblewrap/small`; neither pools nor backends have a slash."""
        return f"{self.pool}/{self.sandbox}/{self.model}"


@dataclass(frozen=True, slots=True)
class Offer:
    """Workers that can do the same, and how many tasks may be announced for them and not yet claimed."""

    needs: tuple[str, ...]
    """Keys of the needs they serve."""
    room: int
