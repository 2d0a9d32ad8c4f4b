"""What the objects of the chart say about an installation, read from their JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zubble_queue.contracts.sandbox_options import split

Object = dict[str, Any]
_SANDBOXES: Final = "ZUBBLE_WORKER__SANDBOXES"
_POD_OPTION: Final = "ZUBBLE_SANDBOXES__POD__"
_OUTSIDE_OPTIONS: Final = frozenset({"kubeconfig_file", "context"})
"""Options of the worker's that mean nothing to whoever looks from elsewhere."""


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A Secret that pods cannot start without, and the key they want of it; None for all of it."""

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet of the chart.

    Args:
        manifest: Its object.
        configs: The ConfigMaps of its namespace that belong to the chart, by name.
    """

    manifest: Object
    configs: Mapping[str, Object]

    @property
    def name(self) -> str:
        return f"{str(self.manifest.get('kind') or 'deployment').lower()}/{self.manifest['metadata']['name']}"

    @property
    def spec(self) -> Object:
        """Of its pods."""
        found: Object = self.manifest["spec"]["template"]["spec"]
        return found

    @property
    def service_account(self) -> str:
        return str(self.spec.get("serviceAccountName") or "default")

    @property
    def secrets(self) -> list[SecretUse]:
        return list(dict.fromkeys(_secrets(self.spec)))

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """Backends that its workers may use; none where it is no worker."""
        if "worker" not in (_words(self.spec)):
            return ()
        named = self._environment.get(_SANDBOXES) or self._table.get("worker", {}).get("sandboxes")
        return tuple(split(named or "bubblewrap"))

    @property
    def pod_options(self) -> Object:
        """`[sandboxes.pod]` as its workers read it."""
        options = dict(self._table.get("sandboxes", {}).get("pod", {}))
        for name, value in self._environment.items():
            if name.startswith(_POD_OPTION):
                options[name.removeprefix(_POD_OPTION).lower()] = value
        return {name: value for name, value in options.items() if name not in _OUTSIDE_OPTIONS}

    @property
    def _environment(self) -> dict[str, str]:
        return {
            entry["name"]: str(entry["value"])
            for container in self.spec.get("containers") or ()
            for entry in container.get("env") or ()
            if entry.get("value") is not None
        }

    @property
    def _table(self) -> Object:
        """Its zubble.toml; empty where there is none that can be read."""
        for volume in self.spec.get("volumes") or ():
            config = self.configs.get((volume.get("configMap") or {}).get("name", ""), {})
            text = (config.get("data") or {}).get("zubble.toml")
            if text is not None:
                try:
                    return tomllib.loads(text)
                except tomllib.TOMLDecodeError:
                    return {}
        return {}


def _words(spec: Object) -> set[str]:
    """What its containers are told to do."""
    containers = spec.get("containers") or ()
    return {word for each in containers for word in [*(each.get("command") or ()), *(each.get("args") or ())]}


def _secrets(spec: Object) -> Iterator[SecretUse]:
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for entry in container.get("env") or ():
            wanted = (entry.get("valueFrom") or {}).get("secretKeyRef")
            if wanted and not wanted.get("optional"):
                yield SecretUse(wanted["name"], wanted["key"])
        for entry in container.get("envFrom") or ():
            wanted = entry.get("secretRef")
            if wanted and not wanted.get("optional"):
                yield SecretUse(wanted["name"])
    for volume in spec.get("volumes") or ():
        wanted = volume.get("secret")
        if wanted and not wanted.get("optional"):
            keys = [item["key"] for item in wanted.get("items") or ()] or [None]
            yield from (SecretUse(wanted["secretName"], key) for key in keys)


CRASHES: Final = "CrashLoopBackOff"
"""Kubernetes' word for a container that ends again and again."""


def troubles(pod: Object) -> Iterator[tuple[str, str]]:
    """Why containers of a pod do not run: the container, and Kubernetes' word for it."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        state = status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        before = (status.get("lastState") or {}).get("terminated") or {}
        reason = waiting.get("reason")
        if "OOMKilled" in {ended.get("reason"), before.get("reason")} and "running" not in state:
            yield status["name"], "OOMKilled"
        elif reason == CRASHES or ended.get("exitCode"):
            yield status["name"], CRASHES
        elif reason not in {None, "ContainerCreating", "PodInitializing"}:
            said = waiting.get("message")
            yield status["name"], f"{reason}: {said}" if said else str(reason)


def unscheduled(pod: Object) -> str:
    """Why no node takes a pod; empty where one did."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "no node takes it")
    return ""


def last_words(log: str) -> str:
    """The last line of a log that says something, as a sentence; JSON lines give their event."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        said = json.loads(lines[-1])
    except ValueError:
        return lines[-1]
    return str(said.get("event") or lines[-1]) if isinstance(said, dict) else lines[-1]


def denies_all(policy: Object) -> bool:
    """Whether a NetworkPolicy allows the pods it selects nothing in either direction."""
    spec = policy.get("spec") or {}
    rules: Iterable[Any] = [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]
    return {"Ingress", "Egress"} <= set(spec.get("policyTypes") or ()) and not list(rules)
