"""How a run ended, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zubble_queue.contracts.ending import MICRO, Stop
from zubble_queue.contracts.event import Event
from zubble_queue.memory_books import MemoryBooks
from zubble_worker.stopping import Stopped
from zubble_worker.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    text: str
    """The report in its file; where there is none, the agent's own line, or why it was stopped."""
    perf: dict[str, Any]
    """Tokens, calls, seconds, money, and the end in one word; all of it can be written as JSON."""
    stop: Stop
    verified: bool | None
    """What the verify command said in the end; None where there is none: a claim is only a claim."""
    work_tree: bytes | None = None
    """A tar; None for a container that is there already, and where the tree is too large."""
    events: tuple[Event, ...] = field(default=(), repr=False)
    """The raw record."""


def perf(
    stopped: Stopped, books: MemoryBooks, transcript: Transcript, *, verified: bool | None, seconds: float
) -> dict[str, Any]:
    """What a run took, and how it ended."""
    usage, model_seconds = books.usage, transcript.seconds.get("model", 0.0)
    return {
        **usage.model_dump(exclude={"spend_micro_usd"}),
        "total_tokens": usage.tokens,
        "spend_usd": usage.spend_micro_usd / MICRO,
        "tokens_saved": transcript.tokens_saved,
        "iterations": transcript.step,
        "context_resets": transcript.resets,
        "seconds": seconds,
        "model_seconds": model_seconds,
        "tokens_per_second": usage.completion_tokens / model_seconds if model_seconds else None,
        "stop": stopped.stop.value,
        "reason": stopped.reason,
        "verified": verified,
    }
