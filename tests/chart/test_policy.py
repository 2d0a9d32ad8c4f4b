"""What the rendered manifests promise, whichever values they are rendered with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.chart.rendered import CHART

Manifest = dict[str, Any]
CLUSTER_WIDE = {"Namespace", "PriorityClass"}
SHARED = {"fsGroup": 10001, "runAsGroup": 10001, "runAsNonRoot": True, "runAsUser": 10001}


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def workloads(manifests: list[Manifest]) -> list[Manifest]:
    return of_kind(manifests, "Deployment", "StatefulSet")


def component(manifest: Manifest) -> str:
    return manifest["metadata"]["labels"]["app.kubernetes.io/component"]


def pod_of(workload: Manifest) -> Manifest:
    return workload["spec"]["template"]["spec"]


def workers(manifests: list[Manifest]) -> list[Manifest]:
    return [each for each in of_kind(manifests, "Deployment") if component(each) == "worker"]


def containers(manifests: list[Manifest]) -> Iterator[Manifest]:
    for workload in workloads(manifests):
        yield from pod_of(workload)["containers"]


def environment(workload: Manifest) -> dict[str, Manifest]:
    return {entry["name"]: entry for entry in pod_of(workload)["containers"][0]["env"]}


def labels_of_pods(manifests: list[Manifest]) -> list[dict[str, str]]:
    return [each["spec"]["template"]["metadata"]["labels"] for each in workloads(manifests)]


def sandbox_namespace(manifests: list[Manifest]) -> str | None:
    places = {each["metadata"]["namespace"] for each in of_kind(manifests, "ResourceQuota")}
    return next(iter(places), None)


def test_no_secret_is_made_and_no_right_is_cluster_wide(manifests):
    kinds = {manifest["kind"] for manifest in manifests}
    assert not kinds & {"Secret", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    for manifest in manifests:
        if "namespace" not in manifest["metadata"] and manifest["kind"] in CLUSTER_WIDE:
            assert "agents" in manifest["metadata"]["name"] or manifest["kind"] == "Namespace"


def test_only_what_belongs_to_sandboxes_is_made_in_another_namespace(manifests):
    elsewhere = [each for each in manifests if "namespace" in each["metadata"]]
    assert {component(each) for each in elsewhere} <= {"sandbox"}
    assert {each["metadata"]["namespace"] for each in elsewhere} <= {sandbox_namespace(manifests)}


def test_every_object_carries_the_common_labels(manifests):
    for manifest in manifests:
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "zubble-queue"
        assert labels["app.kubernetes.io/instance"] == "trial"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_a_selector_finds_its_own_pods_only_and_does_not_change_with_the_version(manifests):
    for workload in workloads(manifests):
        selector = workload["spec"]["selector"]["matchLabels"]
        found = [labels for labels in labels_of_pods(manifests) if selector.items() <= labels.items()]
        assert found == [workload["spec"]["template"]["metadata"]["labels"]]
        assert "app.kubernetes.io/version" not in selector


def test_services_and_budgets_find_pods_and_their_ports(manifests):
    ports = {port["name"] for each in containers(manifests) for port in each["ports"]}
    for service in of_kind(manifests, "Service"):
        if selector := service["spec"].get("selector"):
            assert any(selector.items() <= labels.items() for labels in labels_of_pods(manifests))
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for budget in of_kind(manifests, "PodDisruptionBudget"):
        selector = budget["spec"]["selector"]["matchLabels"]
        assert any(selector.items() <= labels.items() for labels in labels_of_pods(manifests))


def test_nothing_runs_as_root_or_can_become_it(manifests):
    for workload in workloads(manifests):
        security = pod_of(workload)["securityContext"]
        assert security.items() >= SHARED.items()
    for container in containers(manifests):
        security = container["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security.get("privileged")


def test_only_workers_may_leave_the_runtimes_system_call_filter(newest, manifests):
    for workload in workloads(manifests):
        profile = pod_of(workload)["securityContext"]["seccompProfile"]
        assert profile == {"type": "RuntimeDefault"} or component(workload) == "worker"
    for workload in workloads(newest.template()):
        assert pod_of(workload)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_nothing_shares_a_namespace_or_a_folder_of_the_node(manifests):
    for workload in workloads(manifests):
        pod = pod_of(workload)
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod)
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_everything_writes_to_its_volumes_only(manifests):
    for workload in workloads(manifests):
        [container] = pod_of(workload)["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert "/tmp" in mounts
        volumes = [*pod_of(workload)["volumes"], *workload["spec"].get("volumeClaimTemplates", [])]
        named = {volume.get("name") or volume["metadata"]["name"] for volume in volumes}
        assert {mount["name"] for mount in mounts.values()} == named
        for volume in pod_of(workload)["volumes"]:
            mounted = next(mount for mount in mounts.values() if mount["name"] == volume["name"])
            assert ("configMap" not in volume and "secret" not in volume) or mounted["readOnly"] is True
            assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"]


def test_a_token_is_held_by_workers_that_make_pods_and_a_dispatcher_that_marks_them(manifests):
    for account in of_kind(manifests, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for workload in workloads(manifests):
        makes_pods = "ZUBBLE_SANDBOXES__POD__NAMESPACE" in environment(workload)
        marks = "--pod-deletion-cost" in pod_of(workload)["containers"][0].get("args", ())
        assert pod_of(workload)["automountServiceAccountToken"] is (makes_pods or marks)


def test_every_account_and_priority_that_is_named_is_there(manifests):
    accounts = {
        each["metadata"]["name"]
        for each in of_kind(manifests, "ServiceAccount")
        if "namespace" not in each["metadata"]
    }
    classes = {each["metadata"]["name"] for each in of_kind(manifests, "PriorityClass")}
    for workload in workloads(manifests):
        assert pod_of(workload)["serviceAccountName"] in accounts
        assert {pod_of(workload).get("priorityClassName")} <= classes | {None}
        option = environment(workload).get("ZUBBLE_SANDBOXES__POD__PRIORITY_CLASS", {"value": None})
        assert {option["value"]} <= classes | {None}


def test_sandboxes_never_push_anything_off_a_node(manifests):
    classes = {component(each): each for each in of_kind(manifests, "PriorityClass")}
    if classes:
        assert classes["sandbox"]["preemptionPolicy"] == classes["worker"]["preemptionPolicy"] == "Never"
        assert classes["sandbox"]["value"] < classes["worker"]["value"] < classes["control"]["value"]


def test_no_service_of_the_namespace_can_set_a_setting(manifests):
    assert all(pod_of(workload)["enableServiceLinks"] is False for workload in workloads(manifests))


def test_every_secret_is_a_reference_and_none_reaches_whoever_has_no_need_of_it(manifests):
    for workload in workloads(manifests):
        variables = environment(workload)
        secrets = {name for name, entry in variables.items() if "secretKeyRef" in entry.get("valueFrom", {})}
        plain = {name for name in variables if name not in secrets}
        assert all(name.startswith("ZUBBLE_") or name == "AWS_ENDPOINT_URL" for name in plain)
        if component(workload) != "worker":
            assert secrets <= {"REDIS_PASSWORD", "REDISCLI_AUTH", "ZUBBLE_REDIS_URL"}


def test_everything_asks_for_processors_and_memory_and_is_limited(manifests):
    for container in containers(manifests):
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


def test_everything_is_probed_at_a_port_it_has(manifests):
    for container in containers(manifests):
        ports = {port["name"] for port in container["ports"]}
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[name]
            where = probe.get("httpGet") or probe.get("tcpSocket")
            assert where["port"] in ports if where else probe["exec"]["command"]


def test_the_grace_period_lets_a_worker_drain_hand_over_and_leave(manifests):
    from zubble_worker import host

    leaving = host._HANDOVER_SECONDS + 2 * host._LAST_SECONDS
    for worker in workers(manifests):
        drain = int(environment(worker)["ZUBBLE_WORKER__DRAIN_SECONDS"]["value"])
        assert pod_of(worker)["terminationGracePeriodSeconds"] > drain + leaving


def test_images_are_named_by_tag_or_digest_never_latest(manifests):
    for container in containers(manifests):
        image = container["image"]
        assert "@sha256:" in image or ":" in image.rpartition("/")[2]
        assert not image.endswith((":latest", ":"))


def test_pools_that_are_scaled_have_no_number_of_their_own_and_others_have_one(manifests):
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]
        for each in of_kind(manifests, "ScaledObject", "HorizontalPodAutoscaler")
    }
    for worker in workers(manifests):
        assert ("replicas" in worker["spec"]) is (worker["metadata"]["name"] not in scaled)
    assert scaled <= {worker["metadata"]["name"] for worker in workers(manifests)}


def test_sandboxes_are_denied_every_connection_but_what_is_marked_open(manifests):
    namespace = sandbox_namespace(manifests)
    if namespace is None:
        assert not any("ZUBBLE_SANDBOXES__POD__NAMESPACE" in environment(each) for each in workers(manifests))
        return
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in of_kind(manifests, "NetworkPolicy")
        if each["metadata"].get("namespace") == namespace
    }
    assert policies == {
        "zubble-sandbox-deny-all": {
            "podSelector": {
                "matchExpressions": [{"key": "zubble-queue/network", "operator": "NotIn", "values": ["open"]}]
            },
            "policyTypes": ["Ingress", "Egress"],
        },
        "zubble-sandbox-deny-ingress": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def test_a_policy_stands_before_every_port(newest, manifests):
    policies = [each for each in of_kind(manifests, "NetworkPolicy") if "namespace" not in each["metadata"]]
    if not policies:  # said so, in one file of values
        return
    for workload in workloads(manifests):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        mine = [
            each for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        ]
        [policy] = mine
        assert "Ingress" in policy["spec"]["policyTypes"]
        for rule in policy["spec"]["ingress"] or ():
            assert rule["from"], "no peers would let everybody in"
            ports = [port["containerPort"] for port in pod_of(workload)["containers"][0]["ports"]]
            assert [port["port"] for port in rule["ports"]] == ports


def test_the_sandboxes_namespace_is_restricted_and_bounded(newest):
    manifests = newest.template()
    [namespace] = of_kind(manifests, "Namespace")
    assert namespace["metadata"]["name"] == "agents-sandboxes"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    [quota] = of_kind(manifests, "ResourceQuota")
    assert {"pods", "requests.cpu", "requests.memory"} <= set(quota["spec"]["hard"])


def test_flowers_ingress_asks_for_tls_and_leaves_out_what_asks_for_no_password(newest):
    manifests = newest.template("-f", str(CHART / "ci/full-values.yaml"))
    [ingress] = of_kind(manifests, "Ingress")
    [rule] = ingress["spec"]["rules"]
    backends = {path["path"]: path["backend"]["service"]["name"] for path in rule["http"]["paths"]}
    closed = {path for path, service in backends.items() if service.endswith("-closed")}
    assert closed == {"/flower/metrics", "/flower/healthcheck"}
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]
    [service] = [
        each for each in of_kind(manifests, "Service") if each["metadata"]["name"].endswith("-closed")
    ]
    assert "selector" not in service["spec"]


@pytest.mark.parametrize("part", ["worker", "dispatcher", "flower"])
def test_another_configuration_replaces_the_pods(newest, part: str):
    def checksum(config: str) -> str:
        manifests = newest.template("--set-string", f"config={config}")
        [one] = [each for each in workloads(manifests) if component(each) == part]
        return one["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum("max_attempts = 3") != checksum("max_attempts = 2")


def test_the_settings_are_ones_that_the_package_reads(manifests, monkeypatch: pytest.MonkeyPatch):
    from zubble_queue.settings import Settings
    from zubble_sandbox.pods.options import PodOptions

    for workload in workloads(manifests):
        if component(workload) == "redis":
            continue
        variables = environment(workload)
        with monkeypatch.context() as patched:
            for name, entry in variables.items():
                if name.startswith("ZUBBLE_") and name != "ZUBBLE_CONFIG":
                    patched.setenv(name, entry.get("value", "redis://:secret@redis:6379/0"))
            settings = Settings.load()
        assert str(settings.home) == "/var/lib/zubble"
        if component(workload) == "worker":
            assert settings.worker.slots == int(variables["ZUBBLE_WORKER__SLOTS"]["value"])
            assert settings.worker.pools == (workload["metadata"]["labels"]["zubble-queue/pool"],)
            assert settings.artifacts_url == variables["ZUBBLE_ARTIFACTS_URL"]["value"]
        if "pod" in settings.sandboxes:
            options = PodOptions(**settings.sandboxes["pod"])
            assert options.namespace == sandbox_namespace(manifests)
            assert options.box_image


def test_arguments_are_ones_that_the_commands_take(everything):
    """Those of the command line, up to where it would begin to serve."""
    import typer

    from zubble_queue.cli.app import app

    commands = typer.main.get_command(app).commands
    for container in containers(everything):
        if container["name"] != "redis":
            verb, *rest = container["args"]
            assert "0.0.0.0" in commands[verb].make_context(verb, list(rest)).params.values()


def test_the_configuration_is_one_that_the_package_reads(
    manifests, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    from zubble_queue.settings import Settings

    [config] = [each for each in of_kind(manifests, "ConfigMap") if "zubble.toml" in each["data"]]
    file = tmp_path / "zubble.toml"
    file.write_text(config["data"]["zubble.toml"])
    monkeypatch.setenv("ZUBBLE_CONFIG", str(file))
    assert Settings.load().file == file


def test_notes_name_every_secret_that_is_referred_to(newest):
    """`helm template` leaves the notes out; a dry run needs no cluster for them."""
    full = str(CHART / "ci/full-values.yaml")
    done = newest.run("install", "trial", str(CHART), "--dry-run=client", "-n", "agents", "-f", full)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    rendered = yaml.dump(newest.template("-f", full))
    for name in ("own-redis", "who", "artifacts", "model-keys"):
        assert name in rendered
        assert f"secret generic {name} " in notes
