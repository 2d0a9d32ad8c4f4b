"""What `zubble doctor --cluster` does: looks at an installation in a cluster, says what is missing there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zubble_queue import registry
from zubble_queue.cli import checkup

if TYPE_CHECKING:
    from zubble_queue.cli.report import Exit, Report
    from zubble_queue.settings import Settings

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def run(
    settings: Settings, namespace: str | None, kubeconfig: Path | None, context: str | None, report: Report
) -> Exit:
    """Look, report, and return the exit code.

    Args:
        settings: When they name a Redis it is looked at from here as well.
        namespace: Of the installation; that of our own pod, or `default`, when None.
        kubeconfig: None for $KUBECONFIG, ~/.kube/config or the service account of our own pod.
        context: Of the kubeconfig.
        report: Where to.

    Raises:
        MissingExtra: The extra `kubernetes` is not installed.
    """
    look = registry.load("service", "cluster")
    place = namespace or _own_namespace() or "default"
    findings = list(await look(place, None if kubeconfig is None else str(kubeconfig), context))
    if settings.redis_url is not None:
        findings += [finding async for finding in checkup.broker(settings)]
    return checkup.tell(findings, report, namespace=place)


def _own_namespace() -> str | None:
    """Of the pod that we run in; None where that is none."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ or not _OWN_NAMESPACE.exists():
        return None
    return _OWN_NAMESPACE.read_text("utf-8").strip() or None
