"""What a task may ask of this worker; looked at again at the claim, whoever let the task pass before."""

from __future__ import annotations

from zubble_queue.contracts.envelope import SandboxRequest
from zubble_queue.contracts.sandbox import SandboxProvider, holds
from zubble_queue.errors import JobError
from zubble_worker.tools import Tools


def provider_for(asked: SandboxRequest, tools: Tools) -> SandboxProvider:
    """The provider of the sandbox that was asked for, where this worker may open it (invariant 3).

    Raises:
        JobError: It may not; the sentence names the field. Nothing weaker takes its place.
    """
    name = asked.backend
    if name not in tools.providers:
        allowed = ", ".join(sorted(tools.providers)) or "none"
        raise JobError(f"sandbox {name!r} is not allowed on this worker (allowed: {allowed})")
    strength = tools.strengths.get(name, "none")
    if not holds(strength, asked.min_strength):
        raise JobError(
            f"sandbox.min_strength {asked.min_strength!r} is more than {name!r} offers on this worker "
            f"({strength!r})"
        )
    if asked.network != "none":
        raise JobError(f"sandbox.network {asked.network!r} is not allowed on this worker (allowed: none)")
    return tools.providers[name]
