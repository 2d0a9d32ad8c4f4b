"""What the rendered manifests promise, whichever values they are rendered with."""

from __future__ import annotations

from typing import Any

import pytest

CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "PersistentVolume", "Namespace", "StorageClass"}
Pod = dict[str, Any]


def environment(pod: Pod) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in pod["containers"][0]["env"]}


def test_nothing_cluster_wide_and_no_secret_is_created(manifests: list[dict[str, Any]]):
    kinds = {manifest["kind"] for manifest in manifests}
    assert not kinds & (CLUSTER_WIDE | {"Secret", "Role", "RoleBinding"})
    assert kinds <= {"Deployment", "ConfigMap", "ServiceAccount"}


def test_every_object_carries_the_common_labels(manifests: list[dict[str, Any]]):
    for manifest in manifests:
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "zubble-queue"
        assert labels["app.kubernetes.io/instance"] == "trial"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_the_selector_finds_the_pods_and_does_not_change_with_the_version(manifests: list[dict[str, Any]]):
    [deployment] = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert "app.kubernetes.io/version" not in selector


def test_the_worker_is_not_root_and_cannot_become_it(worker: Pod):
    [container] = worker["containers"]
    assert worker["securityContext"]["runAsNonRoot"] is True
    assert worker["securityContext"]["runAsUser"] > 0
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"].get("privileged")


def test_the_worker_shares_no_namespace_of_the_node(worker: Pod):
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(worker)
    assert not [volume for volume in worker["volumes"] if "hostPath" in volume]


def test_the_worker_writes_to_its_volumes_only(worker: Pod):
    [container] = worker["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {"/tmp", "/var/lib/zubble"} <= set(mounts)
    assert mounts["/etc/zubble"]["readOnly"] is True
    assert {mount["name"] for mount in mounts.values()} == {volume["name"] for volume in worker["volumes"]}


def test_the_worker_holds_no_token_of_the_cluster(worker: Pod, manifests: list[dict[str, Any]]):
    assert worker["automountServiceAccountToken"] is False
    for account in (manifest for manifest in manifests if manifest["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_no_service_of_the_namespace_can_set_a_setting(worker: Pod):
    assert worker["enableServiceLinks"] is False


def test_every_secret_is_a_reference(worker: Pod):
    variables = environment(worker)
    assert "secretKeyRef" in variables["ZUBBLE_REDIS_URL"]["valueFrom"]
    for name, entry in variables.items():
        assert ("valueFrom" in entry) or name.startswith("ZUBBLE_"), name


def test_the_worker_asks_for_memory_and_is_limited(worker: Pod):
    resources = worker["containers"][0]["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


def test_the_grace_period_lets_a_worker_drain_hand_over_and_leave(worker: Pod):
    from zubble_worker import host

    drain = int(environment(worker)["ZUBBLE_WORKER__DRAIN_SECONDS"]["value"])
    leaving = host._HANDOVER_SECONDS + 2 * host._LAST_SECONDS
    assert worker["terminationGracePeriodSeconds"] > drain + leaving


def test_the_image_is_named_by_tag_or_digest_never_latest(worker: Pod):
    image = worker["containers"][0]["image"]
    assert "@sha256:" in image or ":" in image.rpartition("/")[2]
    assert not image.endswith((":latest", ":"))


def test_another_configuration_replaces_the_pods(helm):
    def checksum(config: str) -> str:
        manifests = helm.template("--set-string", f"config={config}")
        [deployment] = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
        return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum("max_attempts = 3") != checksum("max_attempts = 2")
    assert checksum("max_attempts = 3") == checksum("max_attempts = 3")


def test_the_settings_are_ones_that_the_package_reads(worker: Pod, monkeypatch: pytest.MonkeyPatch):
    from zubble_queue.settings import Settings

    for name, entry in environment(worker).items():
        if name.startswith("ZUBBLE_") and name != "ZUBBLE_CONFIG":
            monkeypatch.setenv(name, entry.get("value", "redis://:secret@redis:6379/0"))
    settings = Settings.load()
    variables = environment(worker)
    assert settings.worker.slots == int(variables["ZUBBLE_WORKER__SLOTS"]["value"])
    assert settings.worker.pools == tuple(variables["ZUBBLE_WORKER__POOLS"]["value"].split(","))
    assert settings.artifacts_url == variables["ZUBBLE_ARTIFACTS_URL"]["value"]


def test_the_configuration_is_one_that_the_package_reads(
    manifests: list[dict[str, Any]], tmp_path, monkeypatch: pytest.MonkeyPatch
):
    from zubble_queue.settings import Settings

    [config] = [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    file = tmp_path / "zubble.toml"
    file.write_text(config["data"]["zubble.toml"])
    monkeypatch.setenv("ZUBBLE_CONFIG", str(file))
    assert Settings.load().file == file


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("worker.replicas=2", "artifacts"),
        ("worker.replicas=-1", "replicas"),
        ("worker.slots=0", "slots"),
        ("worker.slots=four", "slots"),
        ("worker.pools=null", "pools"),
        ("worker.resources.limits.memory=lots", "memory"),
        ("worker.resources.limits.memory=null", "memory"),
        ("worker.seccompProfile.type=Localhost", "localhostProfile"),
        ("worker.procMount=Unmasked", "hostUsers"),
        ("worker.replica=1", "replica"),
        ("image.tag=not a tag", "tag"),
        ("redis.secretName=", "secretName"),
        ("redis.url=redis://:password@redis", "url"),
        ("modelKeys[0].env=KEY", "secretName"),
        ("modelKeys[0].value=sk-1", "value"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(helm, setting: str, named: str):
    done = helm.run("template", "trial", str(helm.chart), "--set", setting)
    assert done.returncode != 0
    assert named in done.stderr


def test_a_model_key_cannot_take_the_place_of_a_setting(helm):
    key = "modelKeys[0].env=ZUBBLE_REDIS_URL,modelKeys[0].secretName=a,modelKeys[0].secretKey=b"
    assert helm.run("template", "trial", str(helm.chart), "--set", key).returncode != 0


def test_two_places_for_artifacts_are_refused(helm):
    both = "artifacts.url=s3://bucket/path,artifacts.claimName=claim"
    done = helm.run("template", "trial", str(helm.chart), "--set", both)
    assert done.returncode != 0
    assert "artifacts" in done.stderr
