"""Values that make no sense are refused by the field's name."""

from __future__ import annotations

import pytest

from tests.chart.rendered import HELMS

WRONG = {
    "worker.replicas=2": "artifacts",
    "worker.autoscaler=keda": "artifacts",
    "pools.second.slots=1": "artifacts",
    "pools.default.replicas=2": "artifacts",
    "worker.replicas=-1": "replicas",
    "worker.slots=0": "slots",
    "worker.slots=four": "slots",
    "worker.sandboxes={docker}": "sandboxes",
    "worker.networks={}": "networks",
    "worker.drainSeconds=1h": "drainSeconds",
    "worker.autoscaler=cpu": "autoscaler",
    "worker.maxUnavailable=0": "maxUnavailable",
    "worker.resources.limits.memory=lots": "memory",
    "worker.resources.limits.memory=null": "memory",
    "worker.resources.requests.cpu=null": "cpu",
    "worker.seccompProfile.type=Localhost": "localhostProfile",
    "worker.procMount=Unmasked": "hostUsers",
    "worker.replica=1": "replica",
    "worker.tolerations[0].efect=NoSchedule": "efect",
    "pools.default.slot=1": "slot",
    "pools.default=null": "pools",
    "pools.Big.slots=1": "Big",
    "image.tag=not a tag": "tag",
    "image.digest=sha256:0": "digest",
    "redis.secretName=": "secretName",
    "redis.password=secret": "password",
    "redis.image=valkey/valkey:latest": "image",
    "redis.maxmemoryMiB=1": "maxmemoryMiB",
    "redis.appendfsync=no": "appendfsync",
    "redis.tlsSecretName=tls": "tlsSecretName",
    "artifacts.url=s3://key:secret@bucket": "url",
    "artifacts.endpointUrl=s3.example.com": "endpointUrl",
    "dispatcher.replicas=0": "replicas",
    "sandbox.image=debian:12": "image",
    "sandbox.quota.pods=many": "pods",
    "sandbox.namespace=Sand": "namespace",
    "flower.ingress.enabled=true": "host",
    "flower.users=me:secret": "users",
    "networkPolicy.metricsFrom[0].pods=all": "pods",
    "monitoring.sandboxFailureRatio=5": "sandboxFailureRatio",
    "modelKeys[0].env=KEY": "secretName",
    "modelKeys[0].value=sk-1": "value",
    "dispatchers.replicas=1": "dispatchers",
}


@pytest.fixture(
    params=[pytest.param(each, marks=[] if each is HELMS[-1] else pytest.mark.slow) for each in HELMS]
    or [None],
    ids=lambda each: each.binary.name if each else "no-helm",
)
def helm(request, newest):
    """Each Helm checks by a library of its own; all but the newest are slow tests."""
    return request.param


@pytest.mark.parametrize("setting", WRONG)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(helm, setting: str):
    done = helm.run("template", "trial", str(helm.chart), "--set", setting)
    assert done.returncode != 0
    assert WRONG[setting] in done.stderr


@pytest.mark.parametrize("name", ["ZUBBLE_REDIS_URL", "AWS_SECRET_ACCESS_KEY", "REDIS_PASSWORD"])
def test_a_model_key_cannot_take_the_place_of_a_setting(newest, name: str):
    key = f"modelKeys[0].env={name},modelKeys[0].secretName=a,modelKeys[0].secretKey=b"
    assert newest.run("template", "trial", str(newest.chart), "--set", key).returncode != 0


def test_two_places_for_artifacts_are_refused(helm):
    both = "artifacts.url=s3://bucket/path,artifacts.claimName=claim"
    done = helm.run("template", "trial", str(helm.chart), "--set", both)
    assert done.returncode != 0
    assert "artifacts" in done.stderr


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("worker.minReplicas=5,worker.maxReplicas=4", "maxReplicas"),
        ("worker.minReplicas=0,pools.default.autoscaler=hpa", "minReplicas"),
        ("worker.autoscaler=hpa,pools.default.minReplicas=0", "minReplicas"),
    ],
)
def test_an_autoscaler_whose_ends_do_not_fit_is_refused(helm, settings: str, named: str):
    shared = f"artifacts.url=s3://bucket/path,worker.autoscaler=keda,{settings}"
    done = helm.run("template", "trial", str(helm.chart), "--set", shared)
    assert done.returncode != 0
    assert named in done.stderr


def test_a_pool_has_its_own_values_in_place_of_the_common_ones(newest):
    manifests = newest.template(
        "--set",
        "artifacts.url=s3://b/p,worker.hostUsers=false,worker.slots=9,"
        "pools.other.hostUsers=true,pools.other.slots=3,pools.other.replicas=0",
    )
    pods = {
        each["metadata"]["labels"]["zubble-queue/pool"]: each["spec"]
        for each in manifests
        if each["kind"] == "Deployment" and "worker" in each["metadata"]["name"]
    }
    assert pods["other"]["replicas"] == 0
    assert "hostUsers" not in pods["other"]["template"]["spec"]
    assert pods["default"]["template"]["spec"]["hostUsers"] is False
