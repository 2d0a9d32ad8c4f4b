"""`zubble doctor`."""

# ruff: noqa: D301  # \b is click's mark before lines that are not to be filled

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from zubble_queue.cli import options
from zubble_queue.cli.report import Report
from zubble_queue.errors import BadInput


def doctor(
    context: typer.Context,
    *,
    role: Annotated[
        str, typer.Option("--role", metavar="submit|worker|dispatcher", help="What this machine is for.")
    ] = "worker",
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Look at an installation in a Kubernetes cluster instead.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="With --cluster: where it is installed.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="With --cluster: which one.")
    ] = None,
    kube_context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="With --cluster: of the kubeconfig.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Check what this machine or an installation needs, and say what to do about what is missing.

    Exits with 0 when nothing is, 3 when a server does not answer or a sandbox cannot be had here, else 2.

    \b
    Examples:
      zubble doctor
      zubble doctor --role submit --json
      zubble doctor --cluster --namespace zubble
    """
    report = Report("doctor", as_json=as_json)
    settings = options.settings(context)
    if cluster:
        from zubble_queue.cli import cluster as looking

        return asyncio.run(looking.run(settings, namespace, kubeconfig, kube_context, report))
    if namespace or kubeconfig or kube_context:
        raise BadInput(["--namespace, --kubeconfig and --context go together with --cluster."])
    from zubble_queue.cli import checkup

    return asyncio.run(checkup.run(settings, role, report))
