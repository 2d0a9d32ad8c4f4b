"""What a sandbox pod asks of a cluster, field by field (attack 67)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from zubble_queue.contracts.sandbox import MIB, SandboxSpec
from zubble_queue.errors import JobError
from zubble_sandbox.pods import canary, leases, manifests, names
from zubble_sandbox.pods.layout import Layout, check
from zubble_sandbox.pods.making import ticket
from zubble_sandbox.pods.options import PodOptions

IMAGE = "registry.test/tools@sha256:" + "ab" * 32
OWNER = manifests.Owner("zubble-lease", "4f2c0e9a-0000-4000-8000-000000000000")
SPEC = SandboxSpec(
    name="17-fix-the-parser-0123abcd.3.agent",
    owner="host.example-4711-a1b2c3",
    memory_bytes=512 * MIB,
    work_bytes=64 * MIB,
    tmp_bytes=16 * MIB,
    max_life_seconds=1_000.5,
    readonly_files={"/verify/check.py": b"x" * 10_000},
)


def what_an_administrator_makes():
    """For sandboxes, as the documentation shows it."""
    guide = Path(__file__).parents[3] / "docs/how-to/pods.md"
    blocks = re.findall(r"```yaml\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    [manifests] = [block for block in blocks if "kind: Namespace" in block]
    return list(yaml.safe_load_all(manifests))


def rendered(spec=SPEC, **options):
    options = PodOptions(**{"image": IMAGE, **options})
    return manifests.sandbox_pod(spec, Layout.of(spec), options, OWNER, ticket(spec, options))


def containers(pod):
    return [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]


@pytest.fixture(
    params=[{}, {"box_image": IMAGE, "runtime_class": "gvisor", "work_medium": "disk"}],
    ids=["sent", "copied"],
)
def pod(request):
    return rendered(**request.param)


def test_a_pod_ends_by_itself_and_is_never_started_again(pod):
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 1_001 + manifests.START_SECONDS
    assert spec["terminationGracePeriodSeconds"] == 1


def test_a_pod_has_no_way_to_the_cluster(pod):
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["serviceAccountName"] == "zubble-sandbox"
    assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["127.0.0.1"]})
    assert pod["metadata"]["namespace"] == "zubble-sandboxes"


def test_a_pod_passes_the_level_restricted(pod):
    spec = pod["spec"]
    forbidden = {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "ephemeralContainers",
        "nodeName",
    }
    assert not forbidden & set(spec)
    assert {"emptyDir"} == {key for volume in spec["volumes"] for key in volume if key != "name"}
    user = spec["securityContext"]["runAsUser"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert 1_000_000_000 <= user < 1_000_065_536
    for container in containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"ports", "envFrom", "volumeDevices", "lifecycle", "livenessProbe", "env"} & set(container)


def test_requests_are_limits_and_hold_what_the_volumes_in_memory_may(pod):
    for container in containers(pod):
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        assert set(resources["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    in_memory = [volume["emptyDir"] for volume in pod["spec"]["volumes"] if "medium" in volume["emptyDir"]]
    memory = int(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])
    assert memory >= SPEC.memory_bytes + sum(int(volume["sizeLimit"]) for volume in in_memory)


def test_every_volume_has_a_size_and_the_work_tree_the_specs(pod):
    sizes = {volume["name"]: int(volume["emptyDir"]["sizeLimit"]) for volume in pod["spec"]["volumes"]}
    assert (sizes["work"], sizes["tmp"], sizes["shm"]) == (64 * MIB, 16 * MIB, 16 * MIB)
    assert sizes["verify"] >= 10_000


def test_a_work_tree_on_disk_counts_as_ephemeral_storage():
    on_disk, in_memory = rendered(work_medium="disk"), rendered()
    work = {volume["name"]: volume for volume in on_disk["spec"]["volumes"]}["work"]
    assert work["emptyDir"] == {"sizeLimit": str(64 * MIB)}

    def limit(pod, what):
        return int(pod["spec"]["containers"][0]["resources"]["limits"][what])

    assert limit(on_disk, "ephemeral-storage") - limit(in_memory, "ephemeral-storage") == 64 * MIB
    assert limit(in_memory, "memory") - limit(on_disk, "memory") == 64 * MIB


def test_commands_can_change_neither_the_supervisor_nor_the_verify_files(pod):
    box = pod["spec"]["containers"][0]
    mounts = {mount["mountPath"]: mount for mount in box["volumeMounts"]}
    assert mounts["/.zubble"]["readOnly"] is True
    assert mounts["/verify"]["readOnly"] is True
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {
        "/work",
        "/tmp",
        "/dev/shm",
    }
    assert box["command"][0] == "/.zubble/box"


def test_where_the_supervisor_is_copied_the_tasks_image_never_sees_it_writable():
    box_image = "registry.test/box@sha256:" + "cd" * 32
    pod = rendered(box_image=box_image, box_path="/opt/$(x)/box")
    copy, fill, relay = pod["spec"]["initContainers"]
    assert (copy["image"], fill["image"], relay["image"]) == (box_image, IMAGE, box_image)
    assert copy["command"][-1].startswith("cp '/opt/$(x)/box' /.zubble/box && chmod 0111")
    assert "/.zubble" not in {mount["mountPath"] for mount in fill["volumeMounts"]}


def test_the_relay_is_a_sidecar_that_shares_no_file_a_command_may_write(pod):
    relay = pod["spec"]["initContainers"][-1]
    assert (relay["name"], relay["restartPolicy"]) == ("relay", "Always")
    assert relay["volumeMounts"] == [{"name": "program", "mountPath": "/.zubble", "readOnly": True}]
    assert "restartPolicy" not in pod["spec"]["containers"][0]


def test_a_pod_says_whose_it_is(pod):
    metadata, spec = pod["metadata"], pod["spec"]
    assert metadata["ownerReferences"] == [
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": OWNER.lease, "uid": OWNER.uid}
    ]
    labels = metadata["labels"]
    assert labels[names.MANAGED_BY] == "zubble-queue"
    assert (labels[names.TASK], labels[names.ATTEMPT]) == ("17-fix-the-parser-0123abcd", "3")
    assert (labels[names.WORKER], labels[names.LEASE]) == (SPEC.owner, OWNER.lease)
    assert labels[names.TOKEN] == metadata["name"] == spec["containers"][0]["command"][-1]
    assert int(labels[names.EXPIRES]) > 0
    assert labels[names.NETWORK] == "none"
    assert metadata["annotations"][names.NAME_NOTE] == SPEC.name


def test_the_secret_is_in_no_place_that_the_sandbox_can_read(pod):
    secret = pod["metadata"]["annotations"].pop(names.SECRET_NOTE)
    assert len(secret) == 64
    assert secret not in json.dumps(pod)
    assert "downwardAPI" not in json.dumps(pod)
    assert "fieldRef" not in json.dumps(pod)


def test_two_pods_have_nothing_in_common_that_opens_one_with_the_other():
    one, other = rendered(), rendered()
    assert one["metadata"]["name"] != other["metadata"]["name"]
    secrets = {pod["metadata"]["annotations"][names.SECRET_NOTE] for pod in (one, other)}
    assert len(secrets) == 2


def test_the_operator_chooses_where_pods_run():
    tolerations = [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}]
    spec = rendered(
        runtime_class="gvisor",
        node_selector={"pool": "sandboxes"},
        tolerations=tolerations,
        priority_class="low",
        pull_secrets=("registry",),
        user_namespaces=True,
        service_account="nobody",
    )["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "sandboxes"}
    assert spec["tolerations"] == tolerations
    assert spec["priorityClassName"] == "low"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["hostUsers"] is False
    assert spec["serviceAccountName"] == "nobody"


@pytest.mark.parametrize("version", ["1.30", "1.36"])
def test_the_schema_of_kubernetes_accepts_every_object(version):
    options = PodOptions(image=IMAGE, user_namespaces=True, tolerations=[{"key": "a", "operator": "Exists"}])
    for manifest in (
        rendered(),
        rendered(box_image=IMAGE, runtime_class="gvisor", work_medium="disk", node_selector={"a": "b"}),
        manifests.canary_pod("canary", "none", canary.script("1.2.3.4:443"), options=options, owner=OWNER),
        *what_an_administrator_makes(),
        leases.manifest("zubble-lease", "zubble-sandboxes", datetime.now(UTC)),
    ):
        kubernetes_validate.validate(manifest, version, strict=True)  # an unknown kind raises as well


def test_the_policy_selects_every_sandbox_that_is_not_open():
    [policy] = [each for each in what_an_administrator_makes() if each["kind"] == "NetworkPolicy"]
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(spec)
    labels = rendered()["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    [expression] = spec["podSelector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (names.NETWORK, "NotIn")
    assert labels[names.NETWORK] not in expression["values"]
    for network, spared in (("open", True), ("allowlist", False)):
        labels = rendered(replace(SPEC, network=network))["metadata"]["labels"]
        assert (labels[names.NETWORK] in expression["values"]) is spared


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"container": "team/pod"}, "attached"),
        ({"work_dir": None}, "must name one"),
        ({"work_dir": "/usr"}, "folder of the system"),
        ({"work_dir": "/a/../etc"}, "without '..'"),
        ({"work_dir": "/verify/x"}, "must lie apart"),
        ({"scratch": ("/.zubble/x",)}, "folder of the system"),
        ({"scratch": ("/work/x",)}, "must lie apart"),
        ({"verify_dir": "/tmp/verify", "readonly_files": {}}, "must lie apart"),
    ],
)
def test_what_no_pod_can_be_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(JobError, match=re.escape(sentence)):
        check(SandboxSpec(**{"name": "1-a-0.1", "owner": "w", **changes}))


def test_an_image_must_be_named_and_pinned():
    with pytest.raises(JobError, match="No image is named"):
        ticket(SPEC, PodOptions())
    with pytest.raises(JobError, match=r"'debian:12' must be pinned"):
        ticket(SPEC, PodOptions(image="debian:12"))
    assert ticket(SPEC, PodOptions(image="debian:12", require_digest=False)).image == "debian:12"


@pytest.mark.parametrize("text", ["", "-", "a" * 64, "a b", "ü", "x/y", ".hidden", "\ud800"])
def test_whatever_a_worker_is_called_it_makes_a_label(text):
    value = names.label_value(text)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)
    assert value != names.label_value(text + "x")


@pytest.mark.parametrize(
    ("free", "bound", "enforced"),
    [
        (0, 10, True),
        (0, 0, False),
        (10, 10, False),
        (10, 0, False),
        (0, 11, False),
        (0, None, False),
        (None, 10, False),
    ],
)
def test_a_policy_counts_only_where_it_alone_makes_the_difference(free, bound, enforced):
    verdict = canary.judge(free, bound, None)
    assert verdict.enforced is enforced
    assert bool(verdict.problem) is not enforced
