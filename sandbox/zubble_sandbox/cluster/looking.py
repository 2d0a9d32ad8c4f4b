"""What `zubble doctor --cluster` looks at, with the rights of whoever asks; nothing of it is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from zubble_queue.contracts.finding import Finding
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.cluster import workload
from zubble_sandbox.cluster.spaces import Spaces
from zubble_sandbox.cluster.workload import Object, Workload
from zubble_sandbox.pods.access import Access
from zubble_sandbox.pods.api import Api

OLDEST_MINOR: Final = 29
"""Of Kubernetes 1: native sidecars, by which commands reach a sandbox pod."""
SELECTOR: Final = "labelSelector=app.kubernetes.io%2Fname%3Dzubble-queue"
_NO_ANSWER: Final = 0


async def look(namespace: str, kubeconfig_file: str | None, context: str | None) -> list[Finding]:
    """All findings.

    Args:
        namespace: Of the installation.
        kubeconfig_file: None for $KUBECONFIG, ~/.kube/config or the service account of our own pod.
        context: Of the kubeconfig; its current one when None.
    """
    try:
        access = await asyncio.to_thread(Access.load, kubeconfig_file, context)
    except SandboxUnavailable as refused:
        return [Finding("cluster", "unreachable", "no credentials", str(refused))]
    async with Api(access, namespace) as api:
        spaces = Spaces(api, {"kubeconfig_file": kubeconfig_file, "context": context})
        return [finding async for finding in _Look(api, spaces).findings()]


class _Look:
    def __init__(self, api: Api, spaces: Spaces) -> None:
        self._api, self._spaces, self._namespace = api, spaces, api.namespace

    async def findings(self) -> AsyncIterator[Finding]:
        server = await self._server()
        yield server
        if server.verdict not in {"ok", "warning"}:
            return
        workloads = await self._workloads()
        if isinstance(workloads, Finding):
            yield workloads
            workloads = []
        else:
            yield Finding("installation", "ok", ", ".join(each.name for each in workloads))
        for look in (
            self._secrets(workloads),
            self._pods(),
            self._scaling(),
            self._spaces.findings(workloads),
        ):
            async for finding in look:
                yield finding

    async def _server(self) -> Finding:
        status, answer = await self._api.ask("version")
        version = str(answer.get("gitVersion") or "")
        if status == _NO_ANSWER:
            return Finding(
                "cluster",
                "unreachable",
                str(answer["message"]),
                "Name a cluster that answers with KUBECONFIG.",
            )
        if status != 200:
            return Finding(
                "cluster",
                "failed",
                f"answers {status}",
                "Log in: the credentials of the kubeconfig are refused.",
            )
        minor = str(answer.get("minor") or "0").rstrip("+")
        if answer.get("major") == "1" and minor.isdecimal() and int(minor) < OLDEST_MINOR:
            todo = f"Use Kubernetes 1.{OLDEST_MINOR} or newer: sandbox pods have a native sidecar."
            return Finding("cluster", "failed", version, todo)
        return Finding("cluster", "ok", f"Kubernetes {version}")

    async def _workloads(self) -> list[Workload] | Finding:
        """Those of the chart; a finding where there are none."""
        configs = {each["metadata"]["name"]: each for each in await self._ours("api/v1", "configmaps")}
        found = [
            Workload({"kind": kind, **manifest}, configs)
            for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets"))
            for manifest in await self._ours("apis/apps/v1", plural)
        ]
        if found:
            return found
        status, answer = await self._api.ask(f"apis/apps/v1/namespaces/{quote(self._namespace)}/deployments")
        if status == 403:
            todo = f"Ask for the right to list deployments in namespace {self._namespace}."
            return Finding("installation", "failed", str(answer.get("message") or "forbidden"), todo)
        found_none = f"nothing of the chart is in namespace {self._namespace}"
        todo = "Name the right one with --namespace, or install it: helm install zubble charts/zubble-queue."
        return Finding("installation", "failed", found_none, todo)

    async def _ours(self, group: str, plural: str) -> list[Object]:
        """Objects of the chart; none where they may not be listed."""
        path = f"{group}/namespaces/{quote(self._namespace)}/{plural}?{SELECTOR}"
        status, answer = await self._api.ask(path)
        return list(answer.get("items") or ()) if status == 200 else []

    async def _secrets(self, workloads: Iterable[Workload]) -> AsyncIterator[Finding]:
        for use in dict.fromkeys(use for each in workloads for use in each.secrets):
            status, secret = await self._api.ask(
                f"api/v1/namespaces/{quote(self._namespace)}/secrets/{quote(use.name)}"
            )
            check, key = f"secret {use.name}", use.key or "KEY"
            make = f"kubectl create secret generic {use.name} -n {self._namespace} --from-literal={key}=…"
            if status == 404:
                yield Finding(check, "failed", "is missing, and pods wait for it", f"Make it: {make}")
            elif status != 200:
                todo = "Ask for the right to get secrets, or look at it yourself."
                yield Finding(check, "warning", f"cannot be looked at ({status})", todo)
            elif use.key is not None and use.key not in (secret.get("data") or {}):
                yield Finding(
                    check, "failed", f"has no key {use.key!r}", f"Delete it and make it again: {make}"
                )
            else:
                yield Finding(check, "ok", f"has {use.key}" if use.key else "is there")

    async def _pods(self) -> AsyncIterator[Finding]:
        for pod in await self._ours("api/v1", "pods"):
            name, wrong = pod["metadata"]["name"], False
            if why := workload.unscheduled(pod):
                wrong = True
                yield Finding(
                    f"pod {name}", "failed", why, "Make room for it, or ask for less in the values."
                )
            for container, trouble in workload.troubles(pod):
                wrong = True
                yield await self._trouble(name, container, trouble)
            if not wrong:
                yield Finding(f"pod {name}", "ok", str((pod.get("status") or {}).get("phase") or "Unknown"))

    async def _trouble(self, pod: str, container: str, trouble: str) -> Finding:
        reason = trouble.partition(":")[0]
        if reason == workload.CRASHES:
            said = await self._last_words(pod, container)
            todo = f"kubectl logs -n {self._namespace} {pod} -c {container} --previous"
            if "refused the user or password" in said:
                todo = "Put the right URL into the secret that ZUBBLE_REDIS_URL comes from; restart the pods."
            return Finding(f"pod {pod}", "failed", f"ends again and again: {said or 'says nothing'}", todo)
        return Finding(f"pod {pod}", "failed", trouble, _TODO.get(reason, "See `kubectl describe pod`."))

    async def _last_words(self, pod: str, container: str) -> str:
        path = f"api/v1/namespaces/{quote(self._namespace)}/pods/{quote(pod)}/log"
        for previous in ("true", "false"):
            status, answer = await self._api.ask(
                f"{path}?container={quote(container)}&previous={previous}&tailLines=1"
            )
            if status == 200 and (said := workload.last_words(str(answer.get("message") or ""))):
                return said
        return ""

    async def _scaling(self) -> AsyncIterator[Finding]:
        """Whether something changes the number of workers."""
        status, _ = await self._api.ask("apis/keda.sh/v1alpha1")
        scalers = await self._ours("apis/autoscaling/v2", "horizontalpodautoscalers")
        if status == 200:
            scaled = await self._ours("apis/keda.sh/v1alpha1", "scaledobjects")
            for each in scaled:
                yield _scaled(each)
            if not scaled and not scalers:
                todo = "Let the chart make ScaledObjects, if pools are to grow and shrink."
                yield Finding("autoscaling", "warning", "KEDA is installed, and scales nothing here", todo)
        elif scalers:
            yield Finding("autoscaling", "ok", f"{len(scalers)} HorizontalPodAutoscaler, without KEDA")
        else:
            todo = (
                "Install it (helm install keda kedacore/keda -n keda --create-namespace), or let the chart "
                "make a HorizontalPodAutoscaler."
            )
            yield Finding("autoscaling", "warning", "KEDA is not installed: pools keep their size", todo)


def _scaled(each: Object) -> Finding:
    name = f"autoscaling {each['metadata']['name']}"
    for condition in (each.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            if condition.get("status") == "True":
                return Finding(name, "ok", "KEDA scales it")
            why = str(condition.get("message") or condition.get("reason") or "")
            return Finding(
                name, "failed", f"KEDA cannot scale it: {why}", "See `kubectl describe scaledobject`."
            )
    return Finding(name, "failed", "KEDA has not looked at it", "Start KEDA's operator (namespace keda).")


_TODO: Final[Mapping[str, Any]] = {
    "CreateContainerConfigError": "Make the secret or ConfigMap that it names.",
    "ImagePullBackOff": "Push the image, or correct image.repository, image.tag and imagePullSecrets.",
    "ErrImagePull": "Push the image, or correct image.repository, image.tag and imagePullSecrets.",
    "InvalidImageName": "Correct image.repository and image.tag.",
    "OOMKilled": "Raise resources.limits.memory, or lower the slots.",
}
