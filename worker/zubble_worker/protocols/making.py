"""The protocol a task asks for."""

from __future__ import annotations

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_worker.protocols.base import Protocol
from zubble_worker.protocols.structured import Structured
from zubble_worker.protocols.text import Text


def protocol_of(envelope: TaskEnvelope) -> Protocol:
    """Made from the envelope alone, so that every attempt talks alike."""
    return Text(envelope) if envelope.protocol == "text" else Structured(envelope)
