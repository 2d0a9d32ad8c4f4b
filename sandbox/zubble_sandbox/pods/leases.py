"""Pure: the Lease by which a worker owns its pods, and how others see that it is gone."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from zubble_sandbox.pods import names
from zubble_sandbox.pods.api import Object
from zubble_sandbox.records import started_at

DURATION_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
"""Both as the kubelets' for their nodes."""
SKEW_SECONDS: Final = 60
"""How wrong the clocks of two workers may be before one takes the other's pods."""
LABELS: Final = {names.MANAGED_BY: names.MANAGER, names.PART: "worker"}
_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


def manifest(name: str, namespace: str, now: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "spec": {
            "holderIdentity": _identity(),
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now.strftime(_FORMAT),
            "renewTime": now.strftime(_FORMAT),
        },
    }


def renewed(lease: Object, now: datetime) -> Object:
    return {**lease, "spec": {**lease["spec"], "renewTime": now.strftime(_FORMAT)}}


def abandoned_seconds(lease: Object, now: datetime, *, skew: int = SKEW_SECONDS) -> float:
    """For how long nobody has held it; 0 while somebody may.

    A holder on this machine is known by its process. Any other counts as gone some time after its lease
    expired: `skew` is by how much clocks may disagree before one takes something from another.
    """
    spec = lease.get("spec", {})
    try:
        renewed_at = datetime.strptime(spec["renewTime"], _FORMAT).replace(tzinfo=UTC)
    except (KeyError, TypeError, ValueError):
        renewed_at = datetime.fromtimestamp(0, UTC)
    silent = (now - renewed_at).total_seconds()
    if _died_here(str(spec.get("holderIdentity", ""))):
        return max(silent, 0.001)
    duration = spec.get("leaseDurationSeconds") or DURATION_SECONDS
    return silent if silent > duration + skew else 0.0


def _identity() -> str:
    """Host and boot, so that a number of a process is not compared with one of another machine."""
    pid = os.getpid()
    return f"{_here()}/{pid}/{started_at(pid)}"


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _died_here(identity: str) -> bool:
    where, _, process = identity.rpartition("/")[0].rpartition("/")
    started = identity.rpartition("/")[2]
    return where == _here() and process.isdigit() and started_at(int(process)) != started
