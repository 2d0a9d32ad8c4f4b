"""The chart, installed by a real Helm on a real node: the product's image, a queue, sandboxes in pods."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request
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
GOOD, SLOW = answers("touch done.txt"), answers("sleep 15; touch done.txt")
RULES = [
    {"when": {"contains": "task good"}, "turns": GOOD},
    # What was cut off in its first command begins that again when its work is not accepted.
    {"when": {"contains": "task slow"}, "turns": [*SLOW[:3], *SLOW[1:]]},
]

ASKED = [
    ("", "pods", "create get list watch patch update delete deletecollection"),
    ("", "pods/exec", "create get"),
    ("", "pods/log", "get"),
    ("", "secrets", "get list create"),
    ("", "configmaps", "get list"),
    ("", "serviceaccounts/token", "create"),
    ("", "nodes", "list"),
    ("apps", "deployments", "get create patch"),
    ("coordination.k8s.io", "leases", "create get list update patch delete"),
    ("networking.k8s.io", "networkpolicies", "get list delete"),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
]
"""What is tried of an account: group, resource, verbs."""
PASSWORD = secrets.token_hex(12)
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

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
        asked.sock.shutdown()
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

    def scaling(self) -> dict[str, Any]:
        """What an autoscaler is told."""
        [pod] = self.pods("dispatcher")
        url = f"http://{pod.status.pod_ip}:9400/scaling?pool=default"
        with _direct.open(url, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def follow(self) -> int:
        """Do what an autoscaler does, once; returns the number of workers."""
        replicas = math.ceil(self.scaling()["value"])
        self.scale(replicas)
        return replicas

    def scale(self, replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        self.apps.patch_namespaced_deployment_scale(WORKER, self.namespace, patch)

    def working(self, batch: str, *, tasks: int = 4) -> None:
        """Submit slow tasks, and wait until two of them run."""
        self.submit(batch, *(f"slow-{batch}-{number}" for number in range(tasks)))
        self.until(lambda: self.scaling()["running"] == 2, "two agents are at work")

    def ends_well(self, batch: str, *, tasks: int = 4) -> None:
        began = time.monotonic()
        self.run("zubble", "batch", "watch", batch)
        assert self.outcomes(batch) == {"verified": tasks, "total": tasks}, self.told()
        print({batch: round(time.monotonic() - began, 1)})  # noqa: T201 - what -s is asked for

    def whole(self) -> None:
        """Wait until every Deployment and the queue have all that they want."""

        def whole() -> bool:
            sets = self.apps.list_namespaced_stateful_set(self.namespace).items
            found = [*self.apps.list_namespaced_deployment(self.namespace).items, *sets]
            return all(each.status.ready_replicas == each.spec.replicas for each in found)

        self.until(whole, "all pods are ready")

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
        for name, key, text in (
            ("zubble-redis", "password", PASSWORD),
            ("zubble-flower", "users", f"me:{PASSWORD}"),
        ):
            secret = {"metadata": {"name": name}, "stringData": {key: text}}
            place.core.create_namespaced_secret(place.namespace, secret)
        place.core.create_namespaced_persistent_volume_claim(place.namespace, _claim())
        until(lambda: place.core.list_namespaced_service_account(place.namespace).items, "accounts are there")
        place.apply("install")
        place.core.create_namespaced_pod(place.namespace, _desk(place))
        until(lambda: _ready(place, "desk"), "the desk is ready")
        yield place
        place.helm("uninstall", RELEASE, "--ignore-not-found")
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
        "flower": {"resources": small},
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
    installed.ends_well("first", tasks=3)


def test_flower_shows_the_attempts_to_those_who_may_look(installed):
    [pod] = installed.pods("flower")
    tasks = f"http://{pod.status.pod_ip}:5555/api/tasks"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        _direct.open(tasks, timeout=10)
    refused.value.close()
    token = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    asked = urllib.request.Request(tasks, headers={"Authorization": f"Basic {token}"})
    with _direct.open(asked, timeout=10) as answer:
        shown = json.load(answer).values()
    assert [each["state"] for each in shown] == ["SUCCESS"] * 3


def test_the_doctor_finds_nothing_to_mend(installed):
    command = [*ZUBBLE, "doctor", "--cluster", "--namespace", installed.namespace, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    findings = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    open_points = {check for check, each in findings.items() if each["verdict"] != "ok"}
    assert (done.returncode, open_points) == (0, {"autoscaling", "network policy"}), findings
    assert findings[f"rights of {NAME}-worker"]["verdict"] == "ok"


def test_the_workers_account_has_the_rights_of_its_calls_and_no_other_has_any(installed):
    here, there = installed.namespace, f"{installed.namespace}-sandboxes"
    reviews = client.AuthorizationV1Api(installed.api)

    def allowed(account: str, namespace: str) -> set[str]:
        found = set()
        for group, resource, verbs in ASKED:
            for verb in verbs.split():
                name, _, sub = resource.partition("/")
                asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name}
                review = reviews.create_subject_access_review(
                    {
                        "spec": {
                            "user": f"system:serviceaccount:{account}",
                            "resourceAttributes": {**asked, "subresource": sub},
                        }
                    }
                )
                if review.status.allowed:
                    found.add(f"{verb} {resource}")
        return found

    worker = f"{here}:{NAME}-worker"
    assert allowed(worker, there) == {
        *(f"{verb} pods" for verb in ("create", "get", "list", "patch", "delete")),
        *(f"{verb} pods/exec" for verb in ("create", "get")),
        *(f"{verb} leases" for verb in ("create", "get", "list", "update", "delete")),
    }
    assert allowed(worker, here) == set()
    assert allowed(worker, "kube-system") == set()
    for account in (
        f"{here}:{NAME}-dispatcher",
        f"{here}:{REDIS}",
        f"{here}:default",
        f"{there}:zubble-sandbox",
    ):
        assert allowed(account, here) | allowed(account, there) == set(), account


def test_an_upgrade_with_running_work_loses_nothing(installed):
    installed.working("upgrade")
    before = {pod.metadata.name for pod in installed.pods("worker")}
    installed.apply("upgrade", worker={**installed.values["worker"], "podAnnotations": {"trial": "new"}})
    installed.until(
        lambda: before.isdisjoint(pod.metadata.name for pod in installed.pods("worker")),
        "the old one is gone",
    )
    installed.ends_well("upgrade")


def test_a_pool_goes_from_nothing_to_three_workers_and_back_as_the_dispatcher_says(installed):
    assert installed.follow() == 0
    installed.until(lambda: not installed.pods("worker"), "no worker is left")
    installed.submit("tide", *(f"good-tide-{number}" for number in range(6)))
    installed.until(lambda: installed.scaling()["runnable"] == 6, "the work is seen")
    assert installed.follow() == 3
    installed.whole()
    assert len(installed.pods("worker")) == 3
    installed.ends_well("tide", tasks=6)
    assert installed.follow() == 0
    installed.until(lambda: not installed.pods("worker"), "no worker is left")
    installed.scale(1)
    installed.whole()


@pytest.mark.parametrize("component", ["worker", "redis"])
def test_a_killed_pod_loses_nothing(installed, component):
    batch = f"killed-{component}"
    installed.working(batch)
    [pod] = installed.pods(component)
    installed.core.delete_namespaced_pod(pod.metadata.name, installed.namespace, grace_period_seconds=0)
    installed.until(
        lambda: [each.metadata.uid for each in installed.pods(component)] not in ([], [pod.metadata.uid]),
        "another has its place",
    )
    installed.whole()
    installed.ends_well(batch)


def test_a_drained_node_loses_nothing(installed):
    installed.working("drain")
    [node] = installed.core.list_node().items
    moved = [pod for part in ("worker", "dispatcher", "redis") for pod in installed.pods(part)]
    installed.core.patch_node(node.metadata.name, {"spec": {"unschedulable": True}})
    try:
        for pod in moved:
            eviction = {"metadata": {"name": pod.metadata.name, "namespace": installed.namespace}}
            installed.core.create_namespaced_pod_eviction(pod.metadata.name, installed.namespace, eviction)
        gone = {pod.metadata.uid for pod in moved}
        installed.until(
            lambda: gone.isdisjoint(
                pod.metadata.uid for pod in installed.core.list_namespaced_pod(installed.namespace).items
            ),
            "all have left",
        )
    finally:
        installed.core.patch_node(node.metadata.name, {"spec": {"unschedulable": False}})
    installed.whole()
    installed.ends_well("drain")


def test_nothing_is_left_but_the_queues_volume_when_it_is_uninstalled(installed):
    installed.helm("uninstall", RELEASE, "--wait", "--timeout", "200s")
    ours, name = {"label_selector": f"app.kubernetes.io/instance={RELEASE}"}, installed.namespace
    api = installed.api
    network, rights = client.NetworkingV1Api(api), client.RbacAuthorizationV1Api(api)
    lists = (
        lambda: installed.core.list_namespaced_pod(name, **ours),
        lambda: installed.core.list_namespaced_service(name, **ours),
        lambda: installed.core.list_namespaced_config_map(name, **ours),
        lambda: installed.core.list_namespaced_service_account(name, **ours),
        lambda: installed.apps.list_namespaced_deployment(name, **ours),
        lambda: installed.apps.list_namespaced_stateful_set(name, **ours),
        lambda: network.list_namespaced_network_policy(name, **ours),
        lambda: rights.list_namespaced_role(name, **ours),
        lambda: rights.list_namespaced_role_binding(name, **ours),
        lambda: client.PolicyV1Api(api).list_namespaced_pod_disruption_budget(name, **ours),
        lambda: client.SchedulingV1Api(api).list_priority_class(**ours),
        lambda: installed.core.list_namespace(**ours),
    )

    def left() -> list[str]:
        """Cluster-wide objects are named after the namespace."""
        items = [item.metadata for each in lists for item in each().items]
        return [item.name for item in items if item.namespace or item.name.startswith(name)]

    installed.until(lambda: not left(), "nothing of the release is left")
    [kept] = installed.core.list_namespaced_persistent_volume_claim(name, **ours).items
    assert kept.metadata.name == f"data-{REDIS}-0"
