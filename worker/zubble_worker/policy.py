"""What a task may ask of this worker; looked at again at the claim, whoever let the task pass before."""

from __future__ import annotations

from zubble_queue.contracts.envelope import NetworkRequest, SandboxRequest
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
    check_network("sandbox", asked, tools)
    return tools.providers[name]


def check_network(phase: str, asked: NetworkRequest, tools: Tools) -> None:
    """Raises JobError where the worker's settings do not grant the network that a phase asks for."""
    granted = {"none", *tools.networks}
    if asked.network not in granted:
        raise JobError(
            f"{phase}.network {asked.network!r} is not allowed on this worker "
            f"(allowed: {', '.join(sorted(granted))})"
        )
