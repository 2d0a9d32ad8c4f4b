"""`[sandboxes.pod]`: where sandbox pods are made and what they look like."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from zubble_queue.contracts.sandbox_options import SandboxOptions, Words

_NAME: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
LAST_UID: Final = 4_294_967_293
"""The two above it mean "none" to the kernel."""


def _parsed(value: Any) -> Any:
    """From the environment a table is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as broken:
        raise ValueError(f"must be JSON ({broken})") from None


class Toleration(BaseModel):
    """One of Kubernetes' tolerations, with its own names for the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class PodOptions(SandboxOptions):
    """What the operator of a worker may say about its sandbox pods."""

    kubeconfig_file: str | None = None
    """When None: $KUBECONFIG, ~/.kube/config, or the service account of the pod that the worker runs in."""
    context: str | None = None
    """Of the kubeconfig; its current one when None."""
    namespace: str = Field(default="zubble-sandboxes", pattern=_NAME, max_length=63)
    """For sandbox pods only, with its own deny-all network policy and quota."""
    service_account: str = Field(default="zubble-sandbox", pattern=_NAME)
    """Of the sandbox pods: without any right, and its token is not mounted."""
    image: str | None = None
    """For tasks that name none; must have /bin/sh."""
    require_digest: bool = True
    """Refuse images that are not pinned as name@sha256:…: a tag may be another image tomorrow."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: Words = ()
    box_image: str | None = None
    """An image that holds the supervisor and `sh`, such as the worker's own. When None the supervisor is
    sent into the task's image, whose `sh` is then trusted until the first command."""
    box_path: str = Field(default="/opt/zubble/bin/zubble-box", pattern=r"^/\S+$")
    """Where the supervisor is in the box image; the default is right for an image of this project."""
    runtime_class: str | None = None
    """A RuntimeClass with a kernel of its own, such as gvisor or kata; sandboxes then count as `kernel`."""
    user_namespaces: bool = False
    """Give each pod its own user namespace (`hostUsers: false`); the nodes must support it."""
    node_selector: Annotated[dict[str, str], BeforeValidator(_parsed)] = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], BeforeValidator(_parsed)] = ()
    priority_class: str | None = None
    cpus: float = Field(default=1.0, gt=0.0, le=1_024.0)
    """For tasks that ask for no other."""
    work_medium: Literal["memory", "disk"] = "memory"
    """Where the work tree lies. On disk its size is kept by eviction only, some time after it was passed."""
    uid_base: int = Field(default=1_000_000_000, ge=1, le=LAST_UID)
    """First of the uids that pods run as. Each gets one of its own: the kernel counts processes by uid."""
    uid_count: int = Field(default=65_536, ge=1, le=LAST_UID, validate_default=True)
    require_network_policy: bool = True
    """Refuse to work where a canary pod finds that the deny-all policy is not enforced."""
    canary_address: str | None = Field(default=None, pattern=r"^[^\s:/]+:[0-9]{1,5}$")
    """host:port that a pod without policy can reach; the API server's service address when None."""
    start_seconds: float = Field(default=300.0, gt=0.0, le=3_600.0)
    """How long a pod may take to be scheduled, pulled and started."""

    @field_validator("uid_count")
    @classmethod
    def _fits(cls, count: int, info: Any) -> int:
        if info.data.get("uid_base", 0) + count > LAST_UID:
            raise ValueError("uid_base + uid_count is above the last uid")
        return count
