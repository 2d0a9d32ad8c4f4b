"""What it means for a sandbox that this process is in a container itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into every container."""
_REFUSALS: Final = (
    "namespace",
    "Operation not permitted",
    "mount proc",
    "mount points",
    "setting up uid map",
)
"""Words of bubblewrap's where the kernel refused it what it is made of."""
_IN_A_POD: Final = (
    "In a pod without user namespaces bubblewrap cannot work: use the sandbox `pod` "
    "(ZUBBLE_WORKER__SANDBOXES=pod, table [sandboxes.pod]), or give the pod what the chart's README names."
)
_IN_A_CONTAINER: Final = (
    "In a container whose engine forbids user namespaces bubblewrap cannot work: use the sandbox `docker` "
    "with an engine's socket or `pod` with a cluster (ZUBBLE_WORKER__SANDBOXES), or start the container with "
    "--security-opt seccomp=unconfined --security-opt systempaths=unconfined."
)


def instead(backend: str, problems: Iterable[str]) -> str:
    """Which backend to use in place of one that the container around us forbids; empty when it does not."""
    said = " ".join(problems)
    if backend != "bubblewrap" or not any(refusal in said for refusal in _REFUSALS):
        return ""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _IN_A_POD
    return _IN_A_CONTAINER if any(Path(mark).exists() for mark in _MARKS) else ""
