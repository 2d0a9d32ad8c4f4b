"""`[sandboxes.docker]` and `[sandboxes.attached]`: what the operator of a worker says about containers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from zubble_queue.contracts.sandbox_options import SandboxOptions, Words

_HOST: Final = r"^(unix:///\S+|tcp://[^\s/]+)$"
_IMAGE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$"
_INSIDE: Final = r"^/[^\s:,]+$"

Host = Annotated[str | None, Field(pattern=_HOST)]
"""`unix:///path` or `tcp://name:port`; $DOCKER_HOST, then the usual socket, when None."""


class DockerOptions(SandboxOptions):
    """`[sandboxes.docker]`. There is no option that opens a container further than its sandbox needs."""

    host: Host = None
    image: str | None = Field(default=None, pattern=_IMAGE)
    """For tasks that name none, by name or by digest."""
    images: Words = ()
    """Further images that are pulled when a worker starts."""
    pull: Literal["missing", "never"] = "missing"
    """Whether an image that the engine does not have is asked of its registry."""
    runtime: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """One that the engine knows, with a kernel of its own, such as `runsc` (gVisor); sandboxes then count as
    `kernel`."""
    min_free_mb: int = Field(default=2_048, ge=0)
    """No sandbox is opened while the engine's disk has less room."""
    cpus: float | None = Field(default=None, gt=0.0, le=1_024.0)
    """For tasks that ask for no other."""


class AttachedOptions(SandboxOptions):
    """`[sandboxes.attached]`."""

    allow: Words = ()
    """Which containers and pods a task may name, as patterns such as `dev-*` and `team-a/*`."""
    container: str | None = None
    """For tasks that name none; allowed without being listed."""
    work: str | None = Field(default=None, pattern=_INSIDE)
    """The folder inside that is the work tree, in place of the one the task names. It must be there, and what
    is in it is worked on."""
    tools: str = Field(default="/tmp", pattern=_INSIDE)  # noqa: S108 - in the container
    """The folder inside below which the supervisor, scratch files and verify files are put for the time."""
    user: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*(:[A-Za-z0-9._-]+)?$")
    """Whom commands run as in a container; its own user when empty. A pod has one user only."""
    host: Host = None
    kubeconfig_file: str | None = None
    """When None: $KUBECONFIG, ~/.kube/config, or the service account of the pod that the worker runs in."""
    context: str | None = None
    """Of the kubeconfig; its current one when None."""
