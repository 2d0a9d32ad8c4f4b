"""A namespace of a real cluster, made as the documentation says, and a worker with the documented rights.

script/test-cluster gives the cluster: CLUSTER_IMAGE is set then, and KUBECONFIG is an administrator's.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from pathlib import Path

import pytest
import yaml

from zubble_sandbox.pod import PodProvider
from zubble_sandbox.pods.options import PodOptions

IMAGE = os.environ.get("CLUSTER_IMAGE")
KUBECONFIG = os.environ.get("KUBECONFIG")
GUIDE = Path(__file__).parents[2] / "docs/how-to/pods.md"
PATIENCE_SECONDS = 120.0


def pytest_collection_modifyitems(items):
    """Counted among what was not tested."""
    if IMAGE is None:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="no cluster: script/test-cluster gives one"))


@pytest.fixture(scope="session")
def admin():
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(config_file=KUBECONFIG, client_configuration=configuration)
    with client.ApiClient(configuration) as api:
        yield api


@pytest.fixture(scope="session")
def namespace(admin):
    """With everything that docs/how-to/pods.md tells an administrator to make."""
    from kubernetes import client, utils

    name = f"zubble-test-{secrets.token_hex(4)}"
    text = GUIDE.read_text("utf-8")
    [block] = re.findall(r"```yaml\n(apiVersion: v1\nkind: Namespace.*?)```", text, re.DOTALL)
    for manifest in yaml.safe_load_all(block.replace("zubble-sandboxes", name)):
        utils.create_from_dict(admin, manifest)
    core = client.CoreV1Api(admin)
    _until(lambda: core.list_namespaced_service_account(name).items, "the service accounts are there")
    yield name
    core.delete_namespace(name)


@pytest.fixture(scope="session")
def worker_kubeconfig(admin, namespace, tmp_path_factory):
    """Of the service account whose rights the documentation names."""
    from kubernetes import client

    token = client.CoreV1Api(admin).create_namespaced_service_account_token(
        "zubble-worker", namespace, {"spec": {"expirationSeconds": 7_200}}
    )
    config = yaml.safe_load(Path(KUBECONFIG).read_text("utf-8"))
    [context] = [each for each in config["contexts"] if each["name"] == config["current-context"]]
    cluster = next(each for each in config["clusters"] if each["name"] == context["context"]["cluster"])
    path = tmp_path_factory.mktemp("worker") / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [cluster],
                "users": [{"name": "worker", "user": {"token": token.status.token}}],
                "contexts": [{"name": "one", "context": {"cluster": cluster["name"], "user": "worker"}}],
                "current-context": "one",
            }
        )
    )
    return path


@pytest.fixture(scope="session")
def options(namespace, worker_kubeconfig):
    return {
        "kubeconfig_file": str(worker_kubeconfig),
        "namespace": namespace,
        "image": IMAGE,
        "require_digest": "@sha256:" in IMAGE,
        "pull_policy": os.environ.get("CLUSTER_PULL_POLICY", "IfNotPresent"),
        "canary_address": os.environ.get("CLUSTER_CANARY"),
        "cpus": 0.1,
    }


@pytest.fixture
async def make_provider(options):
    providers = []

    def make(**changes):
        providers.append(PodProvider(PodOptions(**{**options, **changes})))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.reap()
        await provider.close()


@pytest.fixture
def provider(make_provider):
    """One that works whether or not this cluster enforces network policies."""
    return make_provider(require_network_policy=False)


@pytest.fixture
def core(admin):
    from kubernetes import client

    return client.CoreV1Api(admin)


def _until(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def until():
    return _until
