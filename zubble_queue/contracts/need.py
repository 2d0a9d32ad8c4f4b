"""What a task needs of a worker, and what workers together offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zubble_queue.contracts.sandbox import STRENGTHS, Strength


def sandbox_need(backend: str, min_strength: Strength) -> str:
    """As in `bubblewrap`, or `bubblewrap:limits` where a strength is demanded; no backend has a colon."""
    return backend if min_strength == STRENGTHS[0] else f"{backend}:{min_strength}"


def sandbox_offers(backend: str, strength: Strength) -> Iterator[str]:
    """What a backend that was found that strong can serve."""
    return (sandbox_need(backend, least) for least in STRENGTHS[: STRENGTHS.index(strength) + 1])


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """A pool, a sandbox and a model; a worker that has all three can run the task."""

    pool: str
    sandbox: str
    """Of `sandbox_need`."""
    model: str

    @property
    def key(self) -> str:
        """As in `default/bubblewrap/small`; neither pools nor backends have a slash."""
        return f"{self.pool}/{self.sandbox}/{self.model}"

    @classmethod
    def of(cls, key: str) -> Need:
        """From its key; a model may have slashes."""
        return cls(*key.split("/", 2))


@dataclass(frozen=True, slots=True)
class Offer:
    """Workers that can do the same, and how many tasks may be announced for them and not yet claimed."""

    needs: tuple[str, ...]
    """Keys of the needs they serve."""
    room: int
