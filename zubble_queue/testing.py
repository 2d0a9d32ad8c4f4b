"""Shipped doubles, for tests of what is built on zubble-queue.

`Script`, `ScriptedModel`, `MockEndpoint` and `FakeContext` come from the worker and are imported when they
are asked for: `from zubble_queue.testing import ScriptedModel` needs the extra `worker`, the rest does not.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from zubble_queue.contracts.model import Cut
from zubble_queue.errors import MissingExtra
from zubble_queue.memory_books import MemoryBooks

if TYPE_CHECKING:
    from zubble_queue.contracts.model import Channel

__all__ = ["MemoryBooks", "RecordingWatcher", "structured_reply"]

_FROM_THE_WORKER: Final = {
    "Script": "zubble_worker.models.script",
    "ScriptedModel": "zubble_worker.models.scripted",
    "MockEndpoint": "zubble_worker.models.mock_endpoint",
    "FakeContext": "zubble_worker.fake_context",
}


@dataclass
class RecordingWatcher:
    """Hears a stream and remembers it; cuts it where it was told to.

    Args:
        cut_after: Cut at this piece, counted from 1; never where it is None.
        reason: What the cut says.
    """

    cut_after: int | None = None
    reason: str = "loop:text"
    pieces: list[tuple[Channel, str]] = field(default_factory=list)

    def feed(self, channel: Channel, text: str) -> Cut | None:
        self.pieces.append((channel, text))
        if self.cut_after is not None and len(self.pieces) >= self.cut_after:
            return Cut(self.reason, {"pieces": len(self.pieces)})
        return None

    def heard(self, channel: Channel) -> str:
        """All of one channel."""
        return "".join(text for heard, text in self.pieces if heard == channel)


def structured_reply(action: Literal["plan", "run", "tool", "report", "submit", "ask"], **fields: Any) -> str:
    """One turn of the structured protocol (Z8), as in `structured_reply("run", command="ls")`."""
    return json.dumps({"action": action, **fields}, ensure_ascii=False)


def __getattr__(name: str) -> Any:
    if name not in _FROM_THE_WORKER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_FROM_THE_WORKER[name]), name)
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{name} (it needs {missing.name})", "worker") from missing
