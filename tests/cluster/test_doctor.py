"""`zubble doctor --cluster` against a real API server: what is missing is named, with what to do about it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys

import pytest
from kubernetes import client

IMAGE = os.environ.get("CLUSTER_IMAGE", "")
LABELS = {"app.kubernetes.io/name": "zubble-queue", "app.kubernetes.io/instance": "trial"}
REFUSED = "Redis at redis://:***@queue:6379/0 refused the user or password."


@pytest.fixture
def place(admin):
    """A namespace for an installation."""
    core, name = client.CoreV1Api(admin), f"zubble-doctor-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    yield name
    core.delete_namespace(name)


def asked_about(namespace):
    return [
        *(sys.executable, "-m", "zubble_queue.cli"),
        *("doctor", "--cluster", "--namespace", namespace, "--json"),
    ]


@pytest.fixture
def doctor(place):
    """Ask the doctor about it; returns the exit code and the findings by check."""

    def doctor():
        done = subprocess.run(asked_about(place), capture_output=True, text=True, check=False, timeout=300)
        said = json.loads(done.stdout)
        assert said["namespace"] == place
        return done.returncode, {finding["check"]: finding for finding in said["findings"]}

    return doctor


@pytest.fixture
def install(admin, place, namespace):
    """Make a worker as the chart does, whose sandboxes are pods of the documented namespace."""

    def install(image=IMAGE):
        options = {"NAMESPACE": namespace, "IMAGE": IMAGE, "REQUIRE_DIGEST": str("@sha256:" in IMAGE)}
        options["PULL_POLICY"] = os.environ.get("CLUSTER_PULL_POLICY", "IfNotPresent")
        if address := os.environ.get("CLUSTER_CANARY"):
            options["CANARY_ADDRESS"] = address
        env = [{"name": f"ZUBBLE_SANDBOXES__POD__{name}", "value": text} for name, text in options.items()]
        env += [
            {"name": "ZUBBLE_WORKER__SANDBOXES", "value": "pod"},
            {
                "name": "ZUBBLE_REDIS_URL",
                "valueFrom": {"secretKeyRef": {"name": "zubble-redis", "key": "url"}},
            },
        ]
        container = {
            "name": "worker",
            "image": image,
            "imagePullPolicy": options["PULL_POLICY"],
            "command": ["/bin/sh", "-c", f"echo '{REFUSED}' >&2; exit 2", "zubble", "worker"],
            "env": env,
        }
        client.CoreV1Api(admin).create_namespaced_service_account(place, {"metadata": {"name": "worker"}})
        client.AppsV1Api(admin).create_namespaced_deployment(
            place,
            {
                "metadata": {"name": "trial-worker", "labels": LABELS},
                "spec": {
                    "selector": {"matchLabels": LABELS},
                    "template": {
                        "metadata": {"labels": LABELS},
                        "spec": {"serviceAccountName": "worker", "containers": [container]},
                    },
                },
            },
        )

    return install


def make_secret(core, place, **data):
    core.create_namespaced_secret(place, {"metadata": {"name": "zubble-redis"}, "stringData": data})


def test_an_empty_namespace_holds_no_installation_and_keda_is_missing(doctor):
    code, found = doctor()

    assert code == 2
    assert found["cluster"]["verdict"] == "ok"
    assert "--namespace" in found["installation"]["todo"]
    assert found["autoscaling"]["verdict"] == "warning"
    assert "KEDA is not installed" in found["autoscaling"]["detail"]
    assert "helm install keda" in found["autoscaling"]["todo"]


def test_a_secret_that_is_missing_or_lacks_its_key_is_named(doctor, install, core, place, until):
    install()

    _, found = doctor()
    assert found["secret zubble-redis"]["verdict"] == "failed"
    assert found["secret zubble-redis"]["todo"] == (
        f"Make it: kubectl create secret generic zubble-redis -n {place} --from-literal=url=…"
    )

    make_secret(core, place, address="redis://queue")
    _, found = doctor()
    assert found["secret zubble-redis"]["detail"] == "has no key 'url'"


def test_the_last_words_of_a_worker_that_cannot_log_in_to_redis_are_told(doctor, install, core, place, until):
    make_secret(core, place, url="redis://:wrong@queue:6379/0")
    install()

    def fails():
        statuses = [
            s for pod in core.list_namespaced_pod(place).items for s in pod.status.container_statuses or ()
        ]
        return any(s.state.waiting and s.state.waiting.reason == "CrashLoopBackOff" for s in statuses)

    until(fails, "the worker ends again and again")
    code, found = doctor()
    [pod] = [finding for check, finding in found.items() if check.startswith("pod ")]
    assert (code, pod["verdict"]) == (2, "failed")
    assert pod["detail"] == f"ends again and again: {REFUSED}"
    assert pod["todo"].startswith("Put the right URL into the secret")
    assert "wrong" not in json.dumps(found)
    assert found["secret zubble-redis"]["verdict"] == "ok"


def test_an_account_without_the_right_to_make_pods_and_one_with_it(admin, doctor, install, namespace, place):
    install()

    code, found = doctor()
    rights = found["rights of worker"]
    assert (code, rights["verdict"]) == (2, "failed")
    assert "it may not create pods" in rights["detail"]
    assert "create pods/exec" in rights["detail"]
    assert namespace in rights["todo"]

    rbac = client.RbacAuthorizationV1Api(admin)
    binding = {
        "metadata": {"name": place},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "zubble-worker"},
        "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": place}],
    }
    rbac.create_namespaced_role_binding(namespace, binding)
    try:
        _, found = doctor()
    finally:
        rbac.delete_namespaced_role_binding(place, namespace)
    assert found["rights of worker"]["verdict"] == "ok"
    assert found[f"namespace {namespace}"]["verdict"] == "ok"


def test_a_network_policy_that_nothing_enforces_and_one_that_is_missing(admin, doctor, install, namespace):
    install()
    network = client.NetworkingV1Api(admin)
    name = "zubble-sandbox-deny-all"
    policy = network.read_namespaced_network_policy(name, namespace)

    _, found = doctor()
    tried = found["network policy"]
    assert tried["detail"] in {"is not enforced", "is enforced: a pod tried to get past it"}
    if tried["verdict"] == "failed":
        assert "Use a network plugin that enforces policies" in tried["todo"]

    network.delete_namespaced_network_policy(name, namespace)
    try:
        code, found = doctor()
    finally:
        policy.metadata.resource_version = policy.metadata.uid = None
        network.create_namespaced_network_policy(namespace, policy)
    assert (code, found["network policy"]["verdict"]) == (2, "failed")
    assert "no policy in" in found["network policy"]["detail"]


def test_a_stranger_is_told_which_rights_to_ask_for(admin, place, namespace, worker_kubeconfig):
    done = subprocess.run(
        [*asked_about(place), "--kubeconfig", str(worker_kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 2
    assert "right to list deployments" in found["installation"]["todo"]
