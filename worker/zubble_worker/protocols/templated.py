"""Protocols whose system prompt comes from a template; replies are read as by `structured` or `text`."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from zubble_queue.contracts.envelope import TaskEnvelope
from zubble_queue.templating.variables import variables
from zubble_worker.protocols.base import Action, opening
from zubble_worker.protocols.structured import Structured
from zubble_worker.protocols.text import Text

OWN: Final[dict[str, type[Structured | Text]]] = {"repair": Structured, "swe": Text}
"""Templates of this package, and how replies to them are read."""


class Templated:
    """Implements protocols.base.Protocol.

    Args:
        name: Of the protocol.
        replies: How replies are read.
        prompt: The system prompt; where it does not say how to answer, that follows.
    """

    def __init__(self, name: str, replies: Structured | Text, prompt: str) -> None:
        self.name, self._replies, self._prompt = name, replies, prompt
        self.schema: dict[str, Any] | None = replies.schema
        self.stops, self.format_error_limit = replies.stops, replies.format_error_limit

    def system_prompt(self) -> str:
        rules = self._replies.rules()
        prompt = self._prompt.strip()
        return prompt if rules in prompt else f"{prompt}\n\n{rules}"

    def parse(self, text: str) -> Action:
        """The action in a reply. Raises NotUnderstood."""
        return self._replies.parse(text)

    def repair_request(self, reason: str) -> str:
        return self._replies.repair_request(reason)


def replies_of(envelope: TaskEnvelope) -> Structured | Text:
    """How the replies of a task with a template of its own are read."""
    return Text(envelope) if envelope.prompt.replies == "text" else Structured(envelope)


def variables_of(envelope: TaskEnvelope, replies: Structured | Text) -> dict[str, Any]:
    """For the template of one task."""
    return variables(envelope, place=opening(envelope.sandbox), rules=replies.rules())


def own(envelope: TaskEnvelope) -> Templated:
    """The protocol of one of the package's own templates."""
    name = envelope.protocol
    replies = OWN[name](envelope)
    template = resources.files(__package__).joinpath("templates", f"{name}.md.j2").read_text("utf-8")
    environment = SandboxedEnvironment(undefined=StrictUndefined)
    return Templated(name, replies, environment.from_string(template).render(variables_of(envelope, replies)))
