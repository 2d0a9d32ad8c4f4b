"""Where the commands of a standalone agent run (Z17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from zubble_queue import registry
from zubble_queue.contracts.envelope import ATTACHED, LOCAL, SandboxRequest
from zubble_queue.contracts.sandbox import SandboxProvider
from zubble_queue.errors import BadInput
from zubble_queue.formats.lines import sentences

HOME: Final = "/root"
"""Where commands begin in a container, unless another folder is named."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A place to be opened for each run."""

    provider: SandboxProvider
    request: SandboxRequest
    work_tree: bytes | None = None
    """A tar of what the work tree begins with; None for nothing, or for what is there already."""


def local_env(work_tree: bytes | None = None) -> Environment:
    """No sandbox: a temporary folder of this machine. Only for places that are isolated already."""
    return Environment(_provider(LOCAL), SandboxRequest(backend=LOCAL), work_tree)


def sandboxed_env(work_tree: bytes | None = None, **request: Any) -> Environment:
    """A bubblewrap sandbox without network; keyword arguments are fields of SandboxRequest.

    Raises:
        BadInput: One sentence per field that cannot be used.
        MissingExtra: What it needs is not installed.
    """
    asked = _request(backend="bubblewrap", **request)
    return Environment(_provider(asked.backend), asked, work_tree)


def docker_env(container: str, work_dir: str = HOME) -> Environment:
    """A container that is there; what commands change in it stays.

    Raises:
        BadInput: The name or the folder cannot be one.
        MissingExtra: The extra `docker` is not installed.
    """
    request = _request(backend=ATTACHED, container=container, work_dir=work_dir)
    return Environment(_provider(ATTACHED, container=container), request)


def kubectl_env(pod: str, work_dir: str = HOME) -> Environment:
    """A pod that is there, as NAMESPACE/POD or NAMESPACE/POD/CONTAINER; else as `docker_env`."""
    return docker_env(pod if "/" in pod else f"default/{pod}", work_dir)


def _request(**fields: Any) -> SandboxRequest:
    try:
        return SandboxRequest(**fields)
    except ValidationError as invalid:
        raise BadInput(sentences(invalid)) from invalid


def _provider(backend: str, **options: Any) -> SandboxProvider:
    made = registry.load("sandbox", backend)
    provider: SandboxProvider = made.from_options(made.Options(**options))
    return provider
