"""`[sandboxes.docker]` and `[sandboxes.attached]`: what the operator of a worker says about containers."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from zubble_queue.contracts.sandbox_options import SandboxOptions, Words

_HOST: Final = r"^(unix:///\S+|tcp://[^\s/]+)$"
_IMAGE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$"
_INSIDE: Final = r"^/[^\s:,]+$"

LAST_UID: Final = 4_294_967_293
"""The two above it mean "none" to the kernel."""

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
    uid_base: int = Field(default=20_000, ge=1, le=LAST_UID)
    """First of the uids that sandboxes run as. Each gets one of its own: the kernel counts some things by
    user, whatever container it is in. Below 65,536 an engine with user namespaces has them, too."""
    uid_count: int = Field(default=40_000, ge=2, le=LAST_UID)

    @field_validator("uid_count")
    @classmethod
    def _fits(cls, count: int, info: ValidationInfo) -> int:
        if info.data.get("uid_base", 0) + count > LAST_UID:
            raise ValueError("uid_base + uid_count is above the last uid")
        return count


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
