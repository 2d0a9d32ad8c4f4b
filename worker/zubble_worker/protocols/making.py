"""The protocol a task asks for."""

from __future__ import annotations

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.errors import JobError
from zubble_queue.templating.rendering import render
from zubble_worker.protocols.base import Protocol
from zubble_worker.protocols.structured import Structured
from zubble_worker.protocols.templated import OWN, Templated, own, replies_of, variables_of
from zubble_worker.protocols.text import Text


def protocol_of(envelope: TaskEnvelope, prompt: str = "") -> Protocol:
    """Made from the envelope, so that every attempt talks alike.

    Args:
        envelope: The task.
        prompt: What `custom_prompt` made of the task's own template.
    """
    if envelope.protocol == "custom":
        return Templated("custom", replies_of(envelope), prompt)
    if envelope.protocol in OWN:
        return own(envelope)
    return Text(envelope) if envelope.protocol == "text" else Structured(envelope)


async def custom_prompt(envelope: TaskEnvelope, template: bytes) -> str:
    """The system prompt from a template that came with the task. Raises JobError."""
    try:
        text = template.decode("utf-8")
    except UnicodeDecodeError as broken:
        raise JobError("prompt.template: the file is not UTF-8") from broken
    return await render(text, variables_of(envelope, replies_of(envelope)))
