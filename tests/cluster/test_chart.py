"""The chart, installed by a real Helm on a real node: the product's image, a queue, sandboxes in pods."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.stream import stream

from tests.chart.rendered import CHART, HELMS
from tests.integration.cli.conftest import ZUBBLE, answers

PRODUCT = os.environ.get("CLUSTER_PRODUCT", "")
RELEASE, NAME = "zubble", "zubble-zubble-queue"
WORKER, REDIS = f"{NAME}-worker-default", f"{NAME}-redis"
STORAGE = "by-hand"
RULES = [
    {"when": {"contains": "task good"}, "turns": answers("touch done.txt")},
    {"when": {"contains": "task slow"}, "turns": answers("sleep 20; touch done.txt")},
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory) -> Iterator[str]:
    """The URL of a scripted model that pods reach."""
    script = tmp_path_factory.mktemp("script") / "script.json"
    script.write_text(json.dumps({"rules": RULES}))
    command = [*ZUBBLE, "mock-endpoint", "--script", str(script), "--host", os.environ["CLUSTER_HOST"]]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@dataclass
class Installation:
    """One release in a namespace of its own, and somebody who submits there."""

    api: client.ApiClient
    namespace: str
    values: dict[str, Any]
    folder: Path
    until: Any
    core: client.CoreV1Api = field(init=False)
    apps: client.AppsV1Api = field(init=False)

    def __post_init__(self) -> None:
        self.core, self.apps = client.CoreV1Api(self.api), client.AppsV1Api(self.api)

    def helm(self, *words: str) -> str:
        command = [str(HELMS[-1].binary), "-n", self.namespace, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr + self.told()
        return done.stdout

    def apply(self, verb: str, **changes: Any) -> None:
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump({**self.values, **changes}))
        self.helm(verb, RELEASE, str(CHART), "-f", str(path), "--wait", "--timeout", "240s")

    def pods(self, component: str) -> list[Any]:
        found = self.core.list_namespaced_pod(
            self.namespace, label_selector=f"app.kubernetes.io/component={component}"
        ).items
        return [pod for pod in found if pod.metadata.deletion_timestamp is None]

    def run(self, *command: str, pod: str = "desk") -> str:
        """What a command in a pod says."""
        asked = stream(
            self.core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            command=list(command),
            stdout=True,
            stderr=True,
            _preload_content=False,
        )
        asked.run_forever(timeout=240)
        said, problems = asked.read_stdout(), asked.read_stderr()
        assert asked.returncode == 0, f"{command}: {said}{problems}{self.told()}"
        return said

    def submit(self, batch: str, *names: str, flags: tuple[str, ...] = ()) -> None:
        lines = [
            {
                "id": name,
                "description": f"This is task {name.partition('-')[0]}, called {name}.",
                "verify": {"command": "test -f done.txt"},
            }
            for name in names
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        self.run("sh", "-c", 'printf %s "$1" >/tmp/tasks.jsonl', "sh", text)
        self.run(
            *("zubble", "batch", "submit", "/tmp/tasks.jsonl", "--batch", batch),
            *("--model", "mock", "--sandbox", "pod", *flags),
        )

    def outcomes(self, batch: str) -> dict[str, int]:
        shown = json.loads(self.run("zubble", "batch", "show", batch, "--json"))
        return {**shown["outcomes"], "total": shown["total"]}

    def told(self) -> str:
        """The last words of every pod of the release."""
        words = []
        for pod in self.core.list_namespaced_pod(self.namespace).items:
            with contextlib.suppress(client.ApiException):
                log = self.core.read_namespaced_pod_log(pod.metadata.name, self.namespace, tail_lines=15)
                words.append(f"\n== {pod.metadata.name} ({pod.status.phase})\n{log}")
        return "".join(words)


@pytest.fixture(scope="module")
def installed(admin, endpoint, tmp_path_factory, until) -> Iterator[Installation]:
    if not PRODUCT:
        pytest.skip(
            "no image of the product: script/fetch-image-parts gives its parts, for a node of our own"
        )
    if not HELMS:
        pytest.skip("Helm is not to be had; script/fetch-helm fetches it.")
    place = Installation(
        admin,
        f"agents-{secrets.token_hex(3)}",
        _values(endpoint),
        tmp_path_factory.mktemp("chart"),
        until,
    )
    with _volumes(place):
        place.core.create_namespace({"metadata": {"name": place.namespace}})
        secret = {"metadata": {"name": "zubble-redis"}, "stringData": {"password": secrets.token_hex(12)}}
        place.core.create_namespaced_secret(place.namespace, secret)
        place.core.create_namespaced_persistent_volume_claim(place.namespace, _claim())
        until(lambda: place.core.list_namespaced_service_account(place.namespace).items, "accounts are there")
        place.apply("install")
        place.core.create_namespaced_pod(place.namespace, _desk(place))
        until(lambda: _ready(place, "desk"), "the desk is ready")
        yield place
        place.core.delete_namespace(place.namespace)


def _values(endpoint: str) -> dict[str, Any]:
    """As helm/dev.yaml, with sandbox pods."""
    small = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    repository, _, tag = PRODUCT.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "config": f'[models.mock]\nbase_url = "{endpoint}"\nprice = "free"\n[lease]\nlease_seconds = 8\n',
        "redis": {
            "image": os.environ["CLUSTER_REDIS"],
            "maxmemoryMiB": 64,
            "storage": "100Mi",
            "storageClass": STORAGE,
            "cpu": "20m",
        },
        "dispatcher": {"replicas": 1, "resources": small},
        "flower": {"enabled": False},
        "networkPolicy": {"metricsFrom": []},
        "artifacts": {"claimName": "artifacts"},
        "worker": {"slots": 2, "drainSeconds": 5, "resources": small},
        "sandbox": {
            "image": os.environ["CLUSTER_IMAGE"],
            "requireDigest": False,
            "requireNetworkPolicy": False,
            "canaryAddress": os.environ["CLUSTER_CANARY"],
            "cpus": 0.1,
        },
    }


@contextlib.contextmanager
def _volumes(place: Installation) -> Iterator[None]:
    """Two folders of this machine as volumes: of the queue, and the artifacts that all pods share."""
    made = []
    for use in ("queue", "artifacts"):
        folder = place.folder / use
        folder.mkdir()
        folder.chmod(0o777)
        volume = {
            "metadata": {"name": f"{place.namespace}-{use}"},
            "spec": {
                "capacity": {"storage": "100Mi"},
                "accessModes": ["ReadWriteMany" if use == "artifacts" else "ReadWriteOnce"],
                "storageClassName": f"{STORAGE}-shared" if use == "artifacts" else STORAGE,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder)},
            },
        }
        place.core.create_persistent_volume(volume)
        made.append(volume["metadata"]["name"])
    yield
    for name in made:
        place.core.delete_persistent_volume(name)


def _claim() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": f"{STORAGE}-shared"}
    return {
        "metadata": {"name": "artifacts"},
        "spec": {**spec, "resources": {"requests": {"storage": "100Mi"}}},
    }


def _desk(place: Installation) -> dict[str, Any]:
    """A pod to submit from: what a worker has, and nothing that works."""
    [worker] = place.apps.list_namespaced_deployment(
        place.namespace, label_selector="app.kubernetes.io/component=worker"
    ).items
    spec = place.api.sanitize_for_serialization(worker.spec.template.spec)
    [container] = spec["containers"]
    for name in ("args", "startupProbe", "readinessProbe", "livenessProbe", "ports"):
        container.pop(name, None)
    container |= {"name": "desk", "command": ["sleep", "infinity"]}
    spec |= {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    spec.pop("serviceAccount", None)
    return {"metadata": {"name": "desk"}, "spec": spec}


def _ready(place: Installation, name: str) -> bool:
    conditions = place.core.read_namespaced_pod(name, place.namespace).status.conditions or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def test_a_batch_is_verified_in_sandbox_pods(installed):
    installed.submit("first", "good-1", "good-2", "good-3")
    began = time.monotonic()
    installed.run("zubble", "batch", "watch", "first")
    assert installed.outcomes("first") == {"verified": 3, "total": 3}
    print({"three tasks": round(time.monotonic() - began, 1)})  # noqa: T201 - what -s is asked for
