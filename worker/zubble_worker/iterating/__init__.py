"""Between the fresh contexts of a loop: the folder they share, what the next is told, what one was worth."""

from __future__ import annotations

from zubble_worker.iterating.briefing import Brief, brief
from zubble_worker.iterating.evidence import Seen, claims, kind_of
from zubble_worker.iterating.folder import Folder

__all__ = ["Brief", "Folder", "Seen", "brief", "claims", "kind_of"]
