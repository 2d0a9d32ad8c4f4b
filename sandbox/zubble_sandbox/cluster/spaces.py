"""The namespaces that sandbox pods go to: who may make them there, and whether they are kept off the network.

The two pods of the network canary are made for that and removed again; the Lease that owns them expires.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final
from urllib.parse import quote

from pydantic import ValidationError

from zubble_queue.contracts.finding import Finding
from zubble_queue.errors import SandboxUnavailable
from zubble_sandbox.cluster import workload
from zubble_sandbox.cluster.workload import Workload
from zubble_sandbox.pods import canary
from zubble_sandbox.pods.api import Api
from zubble_sandbox.pods.keeper import Keeper
from zubble_sandbox.pods.options import PodOptions

RIGHTS: Final[Mapping[tuple[str, str, str], tuple[str, ...]]] = {
    ("", "pods", ""): ("create", "get", "list", "patch", "delete"),
    ("", "pods", "exec"): ("create", "get"),
    ("coordination.k8s.io", "leases", ""): ("create", "get", "list", "update", "delete"),
}
"""Group, resource and subresource to the verbs that a worker needs for sandbox pods: its calls, no more."""
_GUIDE: Final = "docs/how-to/pods.md"


class Spaces:
    """Asks on behalf of the workers of an installation.

    Args:
        api: In the namespace of the installation.
        access: Options of the pod backend that say which cluster it is.
    """

    def __init__(self, api: Api, access: Mapping[str, str | None]) -> None:
        self._api, self._access = api, access

    async def findings(self, workloads: Iterable[Workload]) -> AsyncIterator[Finding]:
        with_pods = [each for each in workloads if "pod" in each.sandboxes]
        spaces: dict[str, Workload] = {}
        for each in with_pods:
            try:
                options = PodOptions.model_validate({**each.pod_options, **self._access})
            except ValidationError as invalid:
                wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in invalid.errors())
                yield Finding(
                    each.name, "failed", f"[sandboxes.pod] {wrong}", "Correct it in the chart's values."
                )
                continue
            yield await self._rights(each, options.namespace)
            if options.namespace not in spaces:
                spaces[options.namespace] = each
                async for finding in self._space(options):
                    yield finding

    async def _rights(self, worker: Workload, namespace: str) -> Finding:
        """Whether a worker's service account may do with sandbox pods what it has to."""
        account = f"system:serviceaccount:{self._api.namespace}:{worker.service_account}"
        lacking: list[str] = []
        for (group, resource, sub), verbs in RIGHTS.items():
            for verb in verbs:
                asked = {"group": group, "resource": resource, "subresource": sub, "verb": verb}
                allowed = await self._allowed(account, {"namespace": namespace, **asked})
                if allowed is None:
                    found = "whether it may make sandbox pods cannot be asked"
                    return Finding(
                        f"rights of {worker.service_account}", "warning", found,
                        "Ask for the right to create subjectaccessreviews.",
                    )  # fmt: skip
                if not allowed:
                    lacking.append(f"{verb} {resource}{f'/{sub}' if sub else ''}")
        check = f"rights of {worker.service_account}"
        if lacking:
            todo = f"Bind the Role of {_GUIDE} in namespace {namespace} to it."
            return Finding(check, "failed", f"in {namespace} it may not {', '.join(lacking)}", todo)
        return Finding(check, "ok", f"it may make sandbox pods in {namespace}")

    async def _allowed(self, account: str, asked: Mapping[str, str]) -> bool | None:
        """None where that cannot be asked: whoever looks may have no right to ask about others."""
        kind = "SubjectAccessReview"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"user": account, "groups": _groups(account), "resourceAttributes": dict(asked)},
        }
        status, answer = await self._api.ask("apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed")) if status == 201 else None

    async def _space(self, options: PodOptions) -> AsyncIterator[Finding]:
        """The namespace of sandbox pods, and the network policy in it."""
        name, check = options.namespace, f"namespace {options.namespace}"
        status, space = await self._api.ask(f"api/v1/namespaces/{quote(name)}")
        if status == 404:
            yield Finding(
                check, "failed", "is missing, and sandbox pods go there", f"Make it as {_GUIDE} says."
            )
            return
        labels = (space.get("metadata") or {}).get("labels") or {}
        if status == 200 and labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            todo = f"kubectl label namespace {name} pod-security.kubernetes.io/enforce=restricted"
            yield Finding(check, "warning", "does not refuse pods that are not restricted", todo)
        elif status == 200:
            yield Finding(check, "ok", "is there, and keeps its pods restricted")
        yield await self._policy(options)

    async def _policy(self, options: PodOptions) -> Finding:
        name = options.namespace
        status, answer = await self._api.ask(
            f"apis/networking.k8s.io/v1/namespaces/{quote(name)}/networkpolicies"
        )
        if status == 200 and not any(map(workload.denies_all, answer.get("items") or ())):
            found = f"no policy in {name} denies its pods everything"
            return Finding("network policy", "failed", found, f"Make the one of {_GUIDE}.")
        if not options.require_network_policy:
            found = "is not demanded (require_network_policy = false)"
            return Finding("network policy", "warning", found, "Demand it, where commands are not trusted.")
        if not (options.box_image or options.image):
            todo = "Set image in [sandboxes.pod]: the pods that try it need one."
            return Finding("network policy", "warning", "could not be tried", todo)
        keeper = Keeper(options)
        try:
            verdict = await canary.send(keeper, options)
        except SandboxUnavailable as refused:
            return Finding("network policy", "warning", "could not be tried", str(refused))
        finally:
            await keeper.close()
        if verdict.enforced:
            return Finding("network policy", "ok", "is enforced: a pod tried to get past it")
        return Finding("network policy", "failed", "is not enforced", verdict.problem)


def _groups(account: str) -> list[str]:
    namespace = account.split(":")[2]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
